"""One execution of a run without a database, for unit tests of nodes, agents and the star.

Journal, interrupts, ledger and budget are the real ones; they write to a `MemorySink`.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver

from brain.durability.journal import Journal
from brain.durability.ledger import Ledger
from brain.governance import Allowance
from brain.interrupts.budget import Meter, RunBudget
from brain.interrupts.requests import Interrupts
from brain.registry.cards import BUILTINS, AgentCard, Roster
from brain.retrieval.search import AgentSearch
from brain.run.context import RunContext
from brain.run.journaled_model import JournaledModel
from brain.run.recorder import RunRecorder
from brain.skills.memory import RunSkills
from brain.state import ConversationMessage
from starling.core.clock import Deadline, SystemClock
from starling.core.conversation.turn import PlacedState
from starling.core.events.stream import AnyEvent
from starling.core.governance import GovernanceTable
from starling.core.llm import FailedAttempt, ModelReply, ModelRequest, ModelRole, ModelToolCall, TextDelta, TokenUsage
from starling.core.runs import Channel, Mode, Run, RunConfig, RunLimits, Step
from starling.core.settings.schema import Limits
from starling.infra.postgres.runs.interrupts import StoredInterrupt
from starling.infra.postgres.runs.ledger import LedgerRow
from starling.infra.postgres.runs.writer import ClauseSource, JournalEntry

MODEL = "scripted:small"

type ScriptedAnswer = str | ModelReply | Exception | FailedAttempt


def tool_calls(*calls: tuple[str, Mapping[str, Any]]) -> ModelReply:
    """An answer that asks for these tools."""
    asked = (ModelToolCall(f"call{n}", name, dict(arguments)) for n, (name, arguments) in enumerate(calls))
    return ModelReply("", tool_calls=tuple(asked))


async def no_turns(count: int) -> Sequence[PlacedState]:
    del count
    return ()


@dataclass(slots=True)
class ScriptedModelClient:
    """A model client that gives one answer after another; an exception is raised, a failed attempt reported."""

    answers: list[ScriptedAnswer]
    usage: TokenUsage = TokenUsage(11, 7)
    requests: list[ModelRequest] = field(default_factory=list[ModelRequest])

    async def respond(self, request: ModelRequest) -> ModelReply:
        self.requests.append(request)
        answer = self.answers.pop(0)
        while isinstance(answer, FailedAttempt):
            assert request.on_failed_attempt is not None
            request.on_failed_attempt(answer)
            answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        reply = ModelReply(answer) if isinstance(answer, str) else answer
        return replace(reply, usage=self.usage, model=MODEL)

    async def stream_respond(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        reply = await self.respond(request)
        for word in reply.content.split(" "):
            yield TextDelta(f"{word} ")
        yield reply

    def describe(self, role: ModelRole, *, supervisor: bool = False) -> str:
        del role, supervisor
        return MODEL

    @property
    def prompts(self) -> list[str]:
        """The last message of each request."""
        return [request.messages[-1].content for request in self.requests]


@dataclass(slots=True)
class MemorySink:
    """What one execution of a run wrote."""

    run: Run
    events: list[AnyEvent] = field(default_factory=list[AnyEvent])
    steps: list[Step] = field(default_factory=list[Step])
    entries: list[JournalEntry] = field(default_factory=list[JournalEntry])
    proven_seconds: float = 0.0
    sources: list[ClauseSource] = field(default_factory=list[ClauseSource])

    def emit(self, event: AnyEvent) -> None:
        self.events.append(event)

    def step(self, step: Step) -> None:
        self.steps.append(step)

    def record(self, entry: JournalEntry) -> None:
        self.entries.append(entry)

    def add(self, source: ClauseSource) -> None:
        self.sources.append(source)

    async def flush(self) -> None:
        for source in self.sources:
            source()
        self.sources.clear()


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a run: its context, its model and what it wrote."""

    context: RunContext
    model: ScriptedModelClient
    sink: MemorySink

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The data of the events of a type, in order."""
        return [event.model_dump() for event in self.sink.events if event.type == kind]

    @property
    def kinds(self) -> list[str]:
        return [event.type for event in self.sink.events]

    @property
    def warnings(self) -> list[str]:
        """The codes of warnings, in order."""
        return [event["code"] for event in self.events("warning")]

    @property
    def text(self) -> str:
        """The text that was streamed, each message replacing the one before."""
        parts = self.events("thinking")
        return "".join(part["content"] for part in parts if part["message_id"] == parts[-1]["message_id"])


def make_run(text: str = "Hi.", *, fence: int = 1, **limits: Any) -> Run:
    """A claimed run; `limits` are its own."""
    return Run(
        tenant="default",
        id="018f0000-0000-7000-8000-000000000001",
        thread_id="thread",
        branch_id="018f0000-0000-7000-8000-000000000002",
        epoch=1,
        input=text,
        config=RunConfig(limits=RunLimits(**limits)),
        correlation_id="correlation",
        trace_id="0" * 32,
        fence=fence,
        crashes=0,
        remaining_seconds=60.0,
        claimed_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


class MemoryCheckpoints:
    """LangGraph's own checkpoints in memory, of each star of a run."""

    def __init__(self) -> None:
        self._savers: dict[str, InMemorySaver] = {}

    def saver(self, path: str = "") -> InMemorySaver:
        return self._savers.setdefault(path, InMemorySaver())


def make_execution(
    *answers: ScriptedAnswer,
    run: Run | None = None,
    limits: Limits | None = None,
    agents: Sequence[AgentCard] = (),
    history: Sequence[ConversationMessage] = (),
    seconds: float = 600.0,
    interrupts: Sequence[StoredInterrupt] = (),
    after: Execution | None = None,
    rows: Sequence[LedgerRow] = (),
    recent_agents: Collection[str] = (),
) -> Execution:
    """Begin an execution in which the model gives these answers; `after` an earlier one, whose journal it knows.

    `rows` are those of the ledger, by default those of that earlier execution.
    """
    run, limits = run or make_run(), limits or Limits()
    sink, clock, model = MemorySink(run), SystemClock(), ScriptedModelClient(list(answers))
    recorder, journal = RunRecorder(sink), Journal(sink, after.sink.entries if after else ())
    questions = Interrupts(sink, clock, 60.0, interrupts)
    budget = RunBudget(Deadline(clock, seconds), Meter(), questions, run.config.limits.tokens)
    roster = Roster({card.name: card for card in (*BUILTINS, *agents)})
    context = RunContext(
        run=run,
        allowance=allowance(run, limits),
        roster=roster,
        search=AgentSearch(run.tenant, roster, roster),
        recent_agents=recent_agents,
        history=tuple(history),
        recorder=recorder,
        journal=journal,
        model=JournaledModel(model, journal, recorder, budget, limits.model_call_seconds),
        budget=budget,
        interrupts=questions,
        ledger=Ledger(sink, questions, clock, 60.0, rows or _rows(after)),
        skills=RunSkills(sink),
        checkpoints=after.context.checkpoints if after else MemoryCheckpoints(),
        turns=no_turns,
    )
    return Execution(context, model, sink)


def _rows(after: Execution | None) -> list[LedgerRow]:
    known: Mapping[Any, LedgerRow] = vars(after.context.ledger)["_rows"] if after else {}
    return list(known.values())


def allowance(run: Run, limits: Limits) -> Allowance:
    row = GovernanceTable().row(Mode.MODERATE, Channel.CHAT)
    return Allowance.of(row, Mode.MODERATE, Channel.CHAT, limits, run.config.limits)


def stored_interrupt(asked: Mapping[str, Any], kind: Any, key: str, **fields: Any) -> StoredInterrupt:
    """An interrupt as a later execution finds it, from its event's data; `fields` say how it was answered."""
    values: dict[str, Any] = {
        "id": asked["id"],
        "run_id": make_run().id,
        "key": key,
        "kind": kind,
        "path": "",
        "reason": asked["reason"],
        "message": asked["message"],
        "responseSchema": {},
        "call": None,
        "state": "resolved",
        "payload": {},
        "createdAt": datetime(2026, 1, 1, tzinfo=UTC),
        "expiresAt": datetime(2026, 1, 2, tzinfo=UTC),
    }
    return StoredInterrupt(**(values | fields))
