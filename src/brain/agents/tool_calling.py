"""The tool calls of one model answer, for every runtime: announced together, each made once, reported as they end."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from brain.agents.artifact_tool import ArtifactTool
from brain.agents.runtime import TaskExecution, ToolUse
from brain.agents.toolbox import Toolbox
from brain.concurrency import run_concurrently
from brain.interrupts.approvals import NOT_APPROVED
from starling.core.artifacts import READ_ARTIFACT
from starling.core.errors import OutcomeUnknownError
from starling.core.events import ToolResult, ToolStart
from starling.core.llm import ModelToolCall
from starling.core.runs import Step
from starling.core.tool_calls import CallState, Effect, Observation, needs_a_person, state_after_answer
from starling.core.tools import ToolCall, ToolDefinition, ToolGateway, ToolOutcome

_STEP_CHARS = 300


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A call as the model asked for it. `call` is None where it isn't one of a server's tool.

    Then `fault` says why it can't be made; without a fault it reads an artifact.
    """

    asked: ModelToolCall
    name: str
    id: str
    index: int
    call: ToolCall | None
    fault: ToolOutcome | None = None

    @property
    def effectful(self) -> ToolCall | None:
        """The call if it may change something, and so has a row in the ledger."""
        return self.call if self.call is not None and self.call.tool.effect is not Effect.READ else None


@dataclass(frozen=True, slots=True)
class ToolAccess:
    """Makes tool calls: those of servers through the gateway, `read_artifact` in this process."""

    gateway: ToolGateway
    artifact_tool: ArtifactTool


@dataclass(frozen=True, slots=True)
class ToolCallBatch:
    """The calls of the answer at `position` of a task. `replayed`: an earlier process announced them."""

    access: ToolAccess
    execution: TaskExecution
    position: int
    requested: Sequence[RequestedCall]
    replayed: bool

    @classmethod
    async def announced(
        cls,
        access: ToolAccess,
        execution: TaskExecution,
        toolbox: Toolbox,
        position: int,
        asked: Sequence[ModelToolCall],
        *,
        replayed: bool,
    ) -> Self:
        """Emit the calls and record those that may change something, durable before any of them leaves.

        `asked` are the calls of one recorded answer, always in its order and without those that aren't tools.
        """
        requested = [_requested(execution, toolbox, (position, index), call) for index, call in enumerate(asked)]
        batch = cls(access, execution, position, requested, replayed)
        if not replayed:
            batch._announce()
            if any(item.effectful for item in requested):
                await execution.context.recorder.flush()
        return batch

    async def use_all(self) -> list[ToolUse]:
        """Make all calls concurrently, in any order; the failure of one doesn't stop the others.

        Raises what `use` raises, SuspendedError once all have gone as far as they can, and OutcomeUnknownError where
        a call was given up while nobody knows whether it was done.
        """
        made = await run_concurrently(self.use(index) for index in range(len(self.requested)))
        if unknown := [item.name for item in self.requested if self._given_up(item)]:
            raise OutcomeUnknownError(" and ".join(unknown))
        return made

    async def use(self, index: int) -> ToolUse:
        """Make one call, or return the outcome that an earlier process recorded.

        Raises SuspendedError where a person has to decide first, LeaseLostError, DatabaseUnavailableError, and
        OutcomeUnknownError where a call that may change something left no row in the ledger.
        """
        item, context = self.requested[index], self.execution.context
        outcome = self._recorded(item)
        if outcome is None:
            outcome = await self._made(item)
            self._report(item, outcome)
            if item.effectful:
                await context.recorder.flush()  # durable before its result is used
        if outcome.code == NOT_APPROVED and outcome.text not in self.execution.refused:
            self.execution.refused.append(outcome.text)
        return ToolUse(item.name, item.asked.arguments or {}, outcome)

    def _recorded(self, item: RequestedCall) -> ToolOutcome | None:
        context = self.execution.context
        stored = context.journal.find(self.execution.path, "tool", self.position, item.index)
        if stored is not None:
            return ToolOutcome.from_json(stored)
        if (call := item.effectful) is None:
            return None
        if self.replayed and not context.ledger.knows(call):  # of a version that had no ledger
            raise OutcomeUnknownError(item.name)
        return context.ledger.outcome(call)

    async def _made(self, item: RequestedCall) -> ToolOutcome:
        if item.fault is not None:
            return item.fault
        context = self.execution.context
        context.budget.meter.tool_calls += 1
        if item.call is None:
            return await self.access.artifact_tool.call(self.execution, item.asked.arguments)
        outcome = await self.access.gateway.call(item.call, context.budget.deadline, context.ledger)
        return await context.ledger.conclude(item.call, outcome) if item.effectful else outcome

    def _given_up(self, item: RequestedCall) -> bool:
        call = item.effectful
        return call is not None and needs_a_person(self.execution.context.ledger.state(call), call.tool.effect)

    def _announce(self) -> None:
        context = self.execution.context
        for item in self.requested:
            context.recorder.emit(
                ToolStart(
                    name=item.name,
                    args=dict(item.asked.arguments or {}),
                    task_id=self.execution.task_id,
                    path=self.execution.path,
                    call_id=item.id,
                )
            )
        context.ledger.intend([call for item in self.requested if (call := item.effectful) is not None])

    def _report(self, item: RequestedCall, outcome: ToolOutcome) -> None:
        """Record the result, unless the ledger has it, and emit its event in the same batch: so it is emitted once."""
        context, path = self.execution.context, self.execution.path
        if not item.effectful:
            context.journal.record(path, "tool", outcome.to_json(), self.position, item.index)
        context.recorder.emit(
            ToolResult(
                name=item.name,
                result=outcome.text,
                call_id=item.id,
                status=outcome.status,
                state=self._state(item, outcome),
                artifact=outcome.artifact or None,
            )
        )
        context.recorder.step(
            Step(
                type="tool_call",
                description=f"{item.name}: {outcome.text[:_STEP_CHARS]}",
                metadata={
                    "tool_name": item.name,
                    "path": path,
                    "status": outcome.status,
                    "error": outcome.code or None,
                    "duration_ms": round(outcome.duration_ms, 1),
                },
            )
        )

    def _state(self, item: RequestedCall, outcome: ToolOutcome) -> CallState:
        if (call := item.effectful) is not None:
            return self.execution.context.ledger.state(call)
        return state_after_answer(outcome.observation, Effect.READ)


def _requested(
    execution: TaskExecution, toolbox: Toolbox, place: tuple[int, int], asked: ModelToolCall
) -> RequestedCall:
    tool = toolbox.tool(asked.name)
    call_id = f"{execution.path}.{place[0]}.{place[1]}"
    if asked.name == READ_ARTIFACT and execution.artifacts:
        return RequestedCall(asked, READ_ARTIFACT, call_id, place[1], None)
    if tool is None:
        fault = _fault(toolbox.unknown(asked.name), "not_allowed")
        return RequestedCall(asked, asked.name, call_id, place[1], None, fault)
    if asked.arguments is None:
        fault = _fault("The arguments weren't a JSON object.", "invalid_arguments")
        return RequestedCall(asked, tool.full_name, call_id, place[1], None, fault)
    return RequestedCall(asked, tool.full_name, call_id, place[1], _call(execution, tool, asked, call_id, place))


def _fault(text: str, code: str) -> ToolOutcome:
    return ToolOutcome(Observation.NOT_SENT, text, code=code)


def _call(
    execution: TaskExecution, tool: ToolDefinition, asked: ModelToolCall, call_id: str, place: tuple[int, int]
) -> ToolCall:
    run = execution.context.run
    call = ToolCall(
        id=call_id,
        run_id=run.id,
        path=execution.path,
        tool=tool,
        arguments=asked.arguments or {},
        grant=run.grant,
        tenant=run.tenant,
        agent=execution.card.name,
        caller=run.caller,
        position=place[0],
        index=place[1],
    )
    return execution.context.ledger.with_keys(call)
