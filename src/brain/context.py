"""What the nodes of one run share: who asks, what is allowed, and the run's own writer, journal and clock."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Final

from brain.durability.journal import Journal, dump_reply, load_reply, request_hash, storable_reply
from brain.durability.ledger import Ledger
from brain.governance import Allowance
from brain.interrupts.budget import Budget, Meter
from brain.interrupts.requests import Interrupts
from brain.registry.cards import Roster
from brain.state import ConversationMessage
from brain.warnings import ModelWarnings
from starling.core.artifacts import NO_ARTIFACTS, ArtifactStore
from starling.core.clock import Deadline
from starling.core.errors import DeadlineExceededError, LLMInvalidResponse
from starling.core.events import AnyEvent, Warn
from starling.core.llm import ModelClient, ModelReply, ModelRequest, TextDelta
from starling.core.runs import Run, Step
from starling.core.settings import Limits
from starling.core.tools import ToolGateway
from starling.core.tracing import NO_TRACER, Tracer
from starling.infra.postgres.runs.writer import RunWriter

OUT_OF_TIME: Final = "The run's time ran out."
OUT_OF_BUDGET: Final = "The run's budget is used up."


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's answer; `replayed` where it was recorded before a crash.

    `fault` says why the answer can't be read at all; then `reply` has no content.
    """

    reply: ModelReply
    replayed: bool
    fault: str = ""


@dataclass(frozen=True, slots=True)
class RunContext:
    """One run's collaborators. Handed to every node by the graph's runtime context."""

    run: Run
    writer: RunWriter
    journal: Journal
    models: ModelClient
    gateway: ToolGateway
    roster: Roster
    history: tuple[ConversationMessage, ...]
    allowance: Allowance
    limits: Limits
    deadline: Deadline
    interrupts: Interrupts
    ledger: Ledger
    meter: Meter = field(default_factory=Meter)
    budget: Budget = field(default_factory=Budget)
    model_warnings: ModelWarnings = field(default_factory=ModelWarnings)
    tracer: Tracer = NO_TRACER
    artifacts: ArtifactStore = NO_ARTIFACTS

    def emit(self, event: AnyEvent) -> None:
        """Add an event to the run's stream."""
        self.writer.emit(event)

    def warn(self, code: str, message: str, task_id: str | None = None) -> None:
        """Tell the reader and the record of something that the run survives."""
        self.writer.emit(Warn(code=code, message=message, task_id=task_id))
        self.writer.step(Step(type="warning", description=message, metadata={"code": code, "task_id": task_id}))

    async def ask(self, path: str, position: int, request: ModelRequest) -> Answer:
        """Return the recorded answer at this place, else ask the model and record what it says.

        Raises ModelError, JournalDivergedError, DeadlineExceededError, BudgetExhaustedError, SuspendedError.
        """
        key = request_hash(request)
        recorded = self.journal.find(path, "answer", position, request_hash=key)
        if recorded is not None:
            return Answer(load_reply(recorded), replayed=True, fault=recorded.get("fault", ""))
        reply = storable_reply(await self.models.respond(self._within_budget(path, request)))
        self._record(path, position, key, request, reply)
        return Answer(reply, replayed=False)

    async def ask_tolerantly(self, path: str, position: int, request: ModelRequest) -> Answer:
        """Do as `ask`, but return an unreadable answer as one with a fault, and record it too."""
        try:
            return await self.ask(path, position, request)
        except LLMInvalidResponse as error:
            reply = ModelReply("", model=error.model, finish_reason="unreadable")
            self._record(path, position, request_hash(request), request, reply, fault=error.reason)
            return Answer(reply, replayed=False, fault=error.reason)

    async def ask_streaming(self, path: str, position: int, request: ModelRequest) -> AsyncIterator[TextDelta | Answer]:
        """Yield the model's text as it comes, and last the whole answer; a recorded one comes at once."""
        key = request_hash(request)
        recorded = self.journal.find(path, "answer", position, request_hash=key)
        if recorded is not None:
            yield Answer(load_reply(recorded), replayed=True)
            return
        async for item in self.models.stream_respond(self._within_budget(path, request)):
            if isinstance(item, ModelReply):
                reply = storable_reply(item)
                self._record(path, position, key, request, reply)
                yield Answer(reply, replayed=False)
                return
            yield item
        raise LLMInvalidResponse(self.models.describe(request.role), "the stream ended without an answer")

    def _within_budget(self, path: str, request: ModelRequest) -> ModelRequest:
        if self.deadline.passed:
            raise DeadlineExceededError(OUT_OF_TIME)
        self.budget.check(self.meter, self.interrupts, path)
        return replace(request, timeout=self.deadline.cap(self.limits.model_call_seconds))

    def _record(
        self, path: str, position: int, key: str, request: ModelRequest, reply: ModelReply, *, fault: str = ""
    ) -> None:
        data = dump_reply(reply) | ({"fault": fault} if fault else {})
        self.journal.record(path, "answer", data, position, request_hash=key)
        self.meter.tokens += reply.usage
        self.meter.model_calls += 1
        self.writer.step(
            Step(
                type="llm_call",
                description=f"{path}: asked {reply.model}",
                metadata={
                    "model_role": request.role.value,
                    "model": reply.model,
                    "input_tokens": reply.usage.input_tokens,
                    "output_tokens": reply.usage.output_tokens,
                    "path": path,
                },
            )
        )
        for warning in self.model_warnings.new_warnings(request, reply.warnings):
            self.warn("model", warning)
