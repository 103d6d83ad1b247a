"""The port of agent runtimes: one attempt at a task at a time, all of it journalled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from brain.registry.cards import AgentCard
from brain.run.context import RunContext
from brain.skills.skill import PromptSkill
from brain.state import ArtifactRecord, DegradedPart, ResultCall, TaskDispatch, TaskOutcome, TrialUse
from starling.core.agents import RuntimeName
from starling.core.fit import DEPENDENT_TASK, JUDGE, fit, share
from starling.core.json import JsonObject, canonical
from starling.core.llm import Message
from starling.core.task_paths import is_repeated
from starling.core.tool_calls import Effect, Observation
from starling.core.tools import Attempt, DoneCall, ToolCall, ToolDefinition, ToolOutcome


@dataclass(frozen=True, slots=True)
class FinishedCall:
    """The finished tool call `id` and its outcome. `name` is the full name, or the one that the model made up.

    `repeated`: equal to an earlier one of the same answer, so the result of the attempt omits it.
    """

    name: str
    arguments: JsonObject
    outcome: ToolOutcome
    repeated: bool = False
    id: str = ""

    @property
    def artifacts(self) -> list[ArtifactRecord]:
        """Binary parts of the result, and the artifact that holds the whole, if that was too long."""
        key, binaries = self.outcome.artifact, self.outcome.binary_artifacts
        found = [ArtifactRecord(id=one, name=self.name, characters=0) for one in binaries]
        return [*found, ArtifactRecord(id=key, name=self.name, characters=self.outcome.characters)] if key else found


def joined_results(uses: Sequence[FinishedCall]) -> str:
    """Return one result as it is, several each under its call."""
    if len(uses) == 1:
        return uses[0].outcome.text
    return "\n\n".join(f"{use.name} {canonical(use.arguments)}:\n{use.outcome.text}" for use in uses)


@dataclass(frozen=True, slots=True)
class MemberResult:
    """The approved outcome of a task of a team's own, and what its member was asked."""

    task: str
    outcome: TaskOutcome


@dataclass(frozen=True, slots=True)
class AttemptOutput:
    """The result of one attempt; `unable`: the agent itself reported that it can't do the task.

    `inner` are the results of a team's members, which it was made of; `degraded` what they did not answer; `code` says
    why a team is unable. `earlier` are the calls of earlier attempts that an output in words is about.
    """

    output: str
    uses: tuple[FinishedCall, ...] = ()
    unable: bool = False
    inner: tuple[MemberResult, ...] = ()
    code: str = ""
    earlier: tuple[FinishedCall, ...] = ()
    degraded: tuple[DegradedPart, ...] = ()


def result_calls(produced: AttemptOutput, output: str) -> list[ResultCall]:
    """Return the calls that a result was made of, and where it has their own results, if as they are."""
    found, at = list[ResultCall](), 0
    for use in produced.uses or produced.earlier:
        if use.outcome.status == "failed" or use.repeated:
            continue
        call = ResultCall(call_id=use.id, tool=use.name)
        if use.outcome.artifact:
            call["artifact"] = use.outcome.artifact
        if (text := use.outcome.text) and (start := output.find(text, at)) >= 0:
            at = start + len(text)
            call["start"], call["end"] = start, at
        found.append(call)
    for call in (call for result in produced.inner for call in result.outcome.get("result_calls", ())):
        found.append({**call, "start": 0, "end": 0})  # its result is not in this output
    return found


@dataclass(slots=True)
class TaskExecution:
    """An agent's work on one task; it grows with each answer, over all attempts.

    `position` is that of the next answer in the journal. `refused` holds the reason of each call that was not
    approved, once; `uses` all finished calls, `calls` the number of those that were made, `limit_reached` whether one
    was refused because of a limit; `kept` the artifacts of results that were too long, by id; `links` the tool whose
    result linked to a resource first, by the resource's address; `skills` those that its
    first messages have; `result_uses` the calls that the approved result was made of, `has_verdict` whether a
    review approved it, not a policy; `attempts_begun_at` how many
    calls were finished when each attempt began; `shown` the names of the tools
    that the model is shown, None where it is shown all; `rejected_for` why the last attempt was rejected; `done` what
    was done by then, in attempts and tries that were rejected or failed; `inner` the outcomes of a team's own tasks,
    over all attempts; `may_note` whether it may keep values for later tasks, `notes` the calls by which the attempt
    did; `runtime` what executes it; `reminded` the last attempt whose model was told to call a tool.
    """

    context: RunContext
    card: AgentCard
    dispatch: TaskDispatch
    path: str
    messages: list[Message] = field(default_factory=list[Message])
    position: int = 0
    refused: list[str] = field(default_factory=list[str])
    uses: list[FinishedCall] = field(default_factory=list[FinishedCall])
    calls: int = 0
    limit_reached: bool = False
    kept: dict[str, ArtifactRecord] = field(default_factory=dict[str, ArtifactRecord])
    links: dict[str, str] = field(default_factory=dict[str, str])
    skills: Sequence[PromptSkill] = ()
    result_uses: Sequence[FinishedCall] = ()
    has_verdict: bool = True
    attempts_begun_at: list[int] = field(default_factory=list[int])
    shown: list[str] | None = None
    rejected_for: Sequence[str] = ()
    done: Sequence[DoneCall] = ()
    inner: list[TaskOutcome] = field(default_factory=list[TaskOutcome])
    may_note: bool = False
    notes: list[FinishedCall] = field(default_factory=list[FinishedCall])
    runtime: RuntimeName = "native"
    reminded: int = 0

    @property
    def artifacts(self) -> Mapping[str, ArtifactRecord]:
        """What the task may read on in: results that it depends on and their artifacts, and artifacts of its own."""
        needed = [record for result in self.dispatch["needed"] for record in self.readable(result)]
        return {record["id"]: record for record in needed} | self.kept

    def readable(self, result: TaskOutcome) -> Sequence[ArtifactRecord]:
        """Return the artifacts of a result, with the result itself where the task is shown only a part of it."""
        key, kept = result["task_id"], result.get("artifacts", [])
        whole = ArtifactRecord(id=key, name=result["agent"], characters=len(result["output"]))
        return [*kept, whole] if key in self.cut_results else kept

    @property
    def cut_results(self) -> Mapping[str, str]:
        """The results that the task depends on and is shown in part, by the ids of their tasks."""
        needed = {one["task_id"]: one["output"] for one in self.dispatch["needed"]}
        shares = zip(needed, share(DEPENDENT_TASK, list(map(len, needed.values()))), strict=True)
        return {task_id: needed[task_id] for task_id, most in shares if len(needed[task_id]) > most}

    @property
    def uses_by_attempt(self) -> list[Sequence[FinishedCall]]:
        """The finished calls of each attempt."""
        ends = [*self.attempts_begun_at[1:], len(self.uses)]
        return [self.uses[begin:end] for begin, end in zip(self.attempts_begun_at, ends, strict=True)]

    @property
    def failed_calls(self) -> list[FinishedCall]:
        """The last call of each tool whose last call failed."""
        last = {use.name: use for use in self.uses}
        return [use for use in last.values() if use.outcome.status == "failed"]

    def keep(self, uses: Sequence[FinishedCall]) -> None:
        """Add finished calls and their artifacts, in their order."""
        self.uses += uses
        self.kept |= {record["id"]: record for use in uses for record in use.artifacts}
        for use in uses:
            for uri in use.outcome.resources:
                self.links.setdefault(uri, use.name)

    @property
    def attempt(self) -> Attempt:
        """The attempt that is being made."""
        number = max(1, len(self.attempts_begun_at))
        after_failure = self.context.after_failure or self.dispatch["task"].get("after_failure", False)
        return Attempt(number, number > 1 or after_failure or is_repeated(self.path), after_failure)

    @property
    def own_done(self) -> list[DoneCall]:
        """What was done before by tools that the agent has itself."""
        own = {tool.full_name for tool in self.card.tools}
        return [done for done in self.done if done.name in own]

    @property
    def calls_before(self) -> int:
        """How many calls earlier tries of the same task made."""
        return self.dispatch.get("calls_before", 0)

    def tool_call(self, tool: ToolDefinition, arguments: JsonObject, position: int, index: int) -> ToolCall:
        """Return a call that the answer at `position` asks for, with its keys in the ledger."""
        run = self.context.run
        call = ToolCall(
            id=f"{self.path}.{position}.{index}",
            run_id=run.id,
            path=self.path,
            tool=tool,
            arguments=arguments,
            grant=run.grant,
            tenant=run.tenant,
            agent=self.card.name,
            caller=run.caller,
            position=position,
            index=index,
            teams=self.context.teams,
            approval=self.card.approval,
            least_approval=self.context.allowance.approval,
            trial=self.context.trial,
            thread_id=run.thread_id,
            attempt=self.attempt,
            wanted=self.wanted,
        )
        return self.context.ledger.with_keys(call)

    @property
    def wanted(self) -> str:
        """What results are read for."""
        return f"{self.dispatch['input_request']}\n{self.task}"

    def place(self, name: str) -> str:
        """Return the path of something of the task itself; below a team's task are the tasks of its members."""
        return f"{self.path}.{name}" if self.card.star else f"{self.path}/{name}"

    @property
    def message_id(self) -> str:
        """The id of the text that is streamed for the next answer."""
        return f"{self.path}.{self.position}.{self.context.run.fence}"

    @property
    def task_id(self) -> str:
        return self.dispatch["task"]["id"]

    @property
    def task(self) -> str:
        return self.dispatch["task"]["task"]


_DONE_CHARS = 300
_MOST_LINES = 20


def done_lines(done: Sequence[DoneCall]) -> list[str]:
    """Return a line for each of the first 20 calls that were done, as models read it."""
    shown = done[:_MOST_LINES]
    made = [f"{one.name} {canonical(one.arguments)[:_DONE_CHARS]}: {one.result[:_DONE_CHARS]}" for one in shown]
    return [*made, f"… and {len(done) - len(shown)} more calls"] if len(done) > len(shown) else made


class AgentRuntime(Protocol):
    """Executes attempts.

    Raises ModelError, JournalDivergedError, OutcomeUnknownError, DeadlineExceededError, BudgetExhaustedError, and
    SuspendedError while a person has to answer first.
    """

    async def attempt(self, execution: TaskExecution) -> AttemptOutput:
        """Make one attempt with `execution.messages`; the model's answers and tool results are added to them."""
        ...


def trial_calls(execution: TaskExecution) -> list[TrialUse]:
    """Return the calls of an agent's tools in all attempts at a task, and those inside the team that it is."""
    path, tools = execution.path, {tool.full_name for tool in execution.card.tools}
    uses, own = [use for use in execution.uses if use.name in tools and not use.repeated], list[TrialUse]()
    for use, most in zip(uses, share(JUDGE, [len(use.outcome.text) for use in uses]), strict=True):
        was_sent = use.outcome.observation is not Observation.NOT_SENT  # else no server answered it
        source = use.outcome.simulated or ("live" if was_sent else "simulated")
        result = fit(use.outcome.text, most, execution.task)
        own.append(TrialUse(tool=use.name, path=path, status=use.outcome.status, source=source, result=result))
    return own + [call for outcome in execution.inner for call in outcome.get("calls", ())]


def has_simulated_effects(execution: TaskExecution) -> bool:
    """Whether a trial has a call that may change something, which the run's ledger doesn't know."""
    if execution.context.trial is None:
        return False
    effectful = {tool.full_name for tool in execution.card.tools if tool.effect is not Effect.READ}
    return any(call["tool"] in effectful for call in trial_calls(execution))
