"""The tool calls of one answer, for every runtime: announced together, each made once, reported when they come back."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from brain.agents.artifact_tool import ArtifactTool
from brain.agents.runtime import TaskExecution, ToolUse
from brain.agents.toolbox import Toolbox
from brain.concurrency import run_concurrently
from brain.durability.ledger import call_key
from brain.interrupts.approvals import NOT_APPROVED
from starling.core.artifacts import READ_ARTIFACT
from starling.core.errors import OutcomeUnknownError
from starling.core.events import ToolResult, ToolStart
from starling.core.llm import ModelToolCall
from starling.core.runs import Step
from starling.core.tool_calls import Effect
from starling.core.tools import ToolCall, ToolDefinition, ToolGateway, ToolOutcome

_STEP_CHARS = 300


@dataclass(frozen=True, slots=True)
class Wanted:
    """A call as the model asked for it. `made` is None where it isn't one of a server's tool.

    Then `fault` says why it can't be made; without a fault it reads in an artifact.
    """

    asked: ModelToolCall
    name: str
    id: str
    index: int
    made: ToolCall | None
    fault: ToolOutcome | None = None

    @property
    def effectful(self) -> bool:
        """Whether it may change something, and so stands in the ledger."""
        return self.made is not None and self.made.tool.effect is not Effect.READ


@dataclass(frozen=True, slots=True)
class ToolAccess:
    """Makes tool calls: those of servers through the gateway, `read_artifact` in this process."""

    gateway: ToolGateway
    artifact_tool: ArtifactTool


@dataclass(frozen=True, slots=True)
class Calling:
    """The calls of the answer at `position` of a task. `replayed` answers were announced in an earlier life."""

    access: ToolAccess
    work: TaskExecution
    position: int
    wanted: Sequence[Wanted]
    replayed: bool

    @classmethod
    async def announced(
        cls,
        access: ToolAccess,
        work: TaskExecution,
        toolbox: Toolbox,
        position: int,
        asked: Sequence[ModelToolCall],
        *,
        replayed: bool,
    ) -> Self:
        """Tell the stream of the calls and write down what may change something, durable before any of them leaves.

        `asked` are the calls of one recorded answer, always in its order and without those that aren't tools.
        """
        wanted = [_wanted(work, toolbox, (position, index), call) for index, call in enumerate(asked)]
        calling = cls(access, work, position, wanted, replayed)
        if not replayed:
            calling._announce()
            if any(call.effectful for call in wanted):
                await work.context.recorder.flush()
        return calling

    async def use_all(self) -> list[ToolUse]:
        """Make all calls side by side, in any order; each is answered whatever becomes of the others.

        Raises what `use` raises, SuspendedError after all have come to where they can.
        """
        return await run_concurrently(self.use(index) for index in range(len(self.wanted)))

    async def use(self, index: int) -> ToolUse:
        """Make one call, or return what it came to in an earlier life.

        Raises SuspendedError where somebody has to decide first, LeaseLostError, DatabaseUnavailableError, and
        OutcomeUnknownError where a change left no trace in the ledger.
        """
        wanted, context = self.wanted[index], self.work.context
        known = self._known(wanted)
        if known is None:
            known = await self._outcome(wanted)
            self._report(wanted, known)
            if wanted.effectful:
                await context.recorder.flush()  # durable before its result is used
        if known.code == NOT_APPROVED and known.text not in self.work.refused:
            self.work.refused.append(known.text)
        return ToolUse(wanted.name, wanted.asked.arguments or {}, known)

    def _known(self, wanted: Wanted) -> ToolOutcome | None:
        context = self.work.context
        recorded = context.journal.find(self.work.path, "tool", self.position, wanted.index)
        if recorded is not None:
            return ToolOutcome(**recorded)
        if wanted.made is None or not wanted.effectful:
            return None
        if self.replayed and not context.ledger.knows(wanted.made):  # of a version that had no ledger
            raise OutcomeUnknownError(wanted.name)
        return context.ledger.outcome(wanted.made)

    async def _outcome(self, wanted: Wanted) -> ToolOutcome:
        if wanted.fault is not None:
            return wanted.fault
        context = self.work.context
        context.budget.meter.tool_calls += 1
        if wanted.made is None:
            return await self.access.artifact_tool.call(self.work, wanted.asked.arguments)
        outcome = await self.access.gateway.call(wanted.made, context.budget.deadline)
        return await context.ledger.conclude(wanted.made, outcome) if wanted.effectful else outcome

    def _announce(self) -> None:
        context = self.work.context
        for wanted in self.wanted:
            context.recorder.emit(
                ToolStart(
                    name=wanted.name,
                    args=dict(wanted.asked.arguments or {}),
                    task_id=self.work.task_id,
                    path=self.work.path,
                    call_id=wanted.id,
                )
            )
        context.ledger.intend([wanted.made for wanted in self.wanted if wanted.made is not None and wanted.effectful])

    def _report(self, wanted: Wanted, outcome: ToolOutcome) -> None:
        """Record the result, unless the ledger has it; its event goes with it, so that it is never told twice."""
        context, path = self.work.context, self.work.path
        if not wanted.effectful:
            context.journal.record(path, "tool", _telling(outcome), self.position, wanted.index)
        artifact = outcome.artifact or None
        context.recorder.emit(
            ToolResult(
                name=wanted.name, result=outcome.text, call_id=wanted.id, status=outcome.status, artifact=artifact
            )
        )
        context.recorder.step(
            Step(
                type="tool_call",
                description=f"{wanted.name}: {outcome.text[:_STEP_CHARS]}",
                metadata={
                    "tool_name": wanted.name,
                    "path": path,
                    "status": outcome.status,
                    "error": outcome.code or None,
                    "duration_ms": round(outcome.duration_ms, 1),
                },
            )
        )


def stop_if_unknown(made: Sequence[ToolUse]) -> None:
    """What may have changed something unseen isn't tried again: the task ends. Raises OutcomeUnknownError."""
    if cut_off := [use.name for use in made if use.outcome.unknown]:
        raise OutcomeUnknownError(" and ".join(cut_off))


def _telling(outcome: ToolOutcome) -> dict[str, Any]:
    """Return an outcome as JSON, without what says nothing: most have neither data nor an artifact."""
    return {name: value for name, value in asdict(outcome).items() if name == "text" or value not in (None, "", 0)}


def _wanted(work: TaskExecution, toolbox: Toolbox, place: tuple[int, int], asked: ModelToolCall) -> Wanted:
    tool = toolbox.tools.get(asked.name)
    call_id = f"{work.path}.{place[0]}.{place[1]}"
    if asked.name == READ_ARTIFACT and work.artifacts:
        return Wanted(asked, READ_ARTIFACT, call_id, place[1], None)
    if tool is None:
        fault = ToolOutcome("failed", f"There is no tool {asked.name!r}.", code="not_allowed")
        return Wanted(asked, asked.name, call_id, place[1], None, fault)
    if asked.arguments is None:
        fault = ToolOutcome("failed", "The arguments weren't a JSON object.", code="invalid_arguments")
        return Wanted(asked, tool.full_name, call_id, place[1], None, fault)
    return Wanted(asked, tool.full_name, call_id, place[1], _call(work, tool, asked, call_id, place))


def _call(
    work: TaskExecution, tool: ToolDefinition, asked: ModelToolCall, call_id: str, place: tuple[int, int]
) -> ToolCall:
    context = work.context
    call = ToolCall(
        id=call_id,
        run_id=context.run.id,
        path=work.path,
        tool=tool,
        arguments=asked.arguments or {},
        grant=context.run.grant,
        tenant=context.run.tenant,
        agent=work.card.name,
        caller=context.run.caller,
        position=place[0],
        index=place[1],
        record=context.ledger,
    )
    return replace(call, key=call_key(call))
