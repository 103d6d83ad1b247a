"""The tool calls of one model answer, for every runtime: announced together, each made once, reported as they end."""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

from brain.agents.tools.note_tool import note_outcome, offers_note
from brain.agents.tools.reading_tools import ArtifactTool, resource_call
from brain.agents.tools.requested_calls import RequestedCall, repetitions, requested_calls, within_limits
from brain.agents.tools.tool_finder import ToolFinder
from brain.agents.tools.toolbox import Toolbox
from brain.agents.turn.agent_runtime import FinishedCall, TaskExecution
from brain.interrupts.requests import NOT_APPROVED, REPEAT_REFUSED
from starling.core.errors import OutcomeUnknownError, StarlingError, SuspendedError
from starling.core.events.run_events import ToolEvent, ToolLog, ToolProgress, ToolResult, ToolStart
from starling.core.llm import ModelToolCall
from starling.core.runs import Step
from starling.core.settings.schema import Limits
from starling.core.tool_calls import Effect, needs_a_person, state_after_answer
from starling.core.tools import FIND_TOOLS, NOTE, READ_RESOURCE, ToolGateway, ToolNotice, ToolOutcome

_STEP_CHARS = 300
_REPEATED_CHARS = 500
_TREATED_AS_ONE = "These count as one call; to make another one, ask for it in a later answer."


@dataclass(frozen=True, slots=True)
class ToolAccess:
    """Makes tool calls: those of servers through the gateway, built-in ones in this process.

    Without a `tool_finder`, agents are shown all their tools.
    """

    gateway: ToolGateway
    artifact_tool: ArtifactTool
    limits: Limits
    tool_finder: ToolFinder | None = None


@dataclass(frozen=True, slots=True)
class ToolCallBatch:
    """The calls of the answer at `position` of a task. `replayed`: an earlier process announced them."""

    access: ToolAccess
    execution: TaskExecution
    toolbox: Toolbox
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
        requested = requested_calls(execution, toolbox, position, asked)
        requested = within_limits(execution, position, requested, access.limits, replayed=replayed)
        execution.calls += sum(item.is_made for item in requested)
        batch = cls(access, execution, toolbox, position, requested, replayed)
        if not replayed:
            batch._announce()
        execution.limit_reached |= any(item.refused for item in requested)
        if not replayed and any(item.effectful for item in requested):
            await execution.context.recorder.flush()
        return batch

    @property
    def is_cut(self) -> bool:
        """Whether calls were refused that may be asked for again in the next answer."""
        return any(item.refused for item in self.requested) and any(item.is_made for item in self.requested)

    @property
    def looked_for_tools(self) -> bool:
        """Whether the model asked for tools, which it is shown with its next request."""
        return any(item.name == FIND_TOOLS and item.is_made for item in self.requested)

    async def use_all(self) -> list[FinishedCall]:
        """Make all calls concurrently, in any order; the failure of one doesn't stop the others.

        Returns the outcome of each requested call. One that repeats another of the answer gets the outcome of that one.
        Raises what `use` raises, SuspendedError once all have gone as far as they can, and OutcomeUnknownError where
        a call was given up while its outcome was unknown.
        """
        own = [item.index for item in self.requested if item.repeats is None]
        made = dict(zip(own, await run_concurrently(map(self.use, own)), strict=True))
        ledger = self.execution.context.ledger
        calls = [call for item in self.requested if (call := item.effectful) is not None]
        if unknown := [call.tool.full_name for call in calls if needs_a_person(ledger.state(call), call.tool.effect)]:
            raise OutcomeUnknownError(" and ".join(unknown))
        times, refused = repetitions(self.requested), [item.index for item in self.requested if item.refused]
        answered = [_use_of(item, made, times, first_refused=min(refused, default=-1)) for item in self.requested]
        kept = (use for use in answered if use.name == NOTE and use.outcome.status == "succeeded")
        self.execution.notes += kept
        return answered

    def results(self, answered: Iterable[FinishedCall]) -> list[FinishedCall]:
        """Return those of the calls that are results of the attempt: no repetitions, look for tools or note."""
        looks, notes = self.execution.shown is not None, offers_note(self.execution, self.toolbox)
        own = {name for name, is_offered in ((FIND_TOOLS, looks), (NOTE, notes)) if is_offered}
        return [use for use in answered if not use.repeated and use.name not in own]

    async def use(self, index: int) -> FinishedCall:
        """Make one call, or return the outcome that an earlier process recorded.

        Raises SuspendedError where a person has to decide first, LeaseLostError, DatabaseUnavailableError, and
        OutcomeUnknownError where a call that may change something left no row in the ledger.
        """
        item, context = self.requested[index], self.execution.context
        if item.refused and item.fault is not None:
            return FinishedCall(item.name, item.asked.arguments or {}, item.fault, id=item.id)
        outcome = self._recorded(item)
        if outcome is None:
            if context.ledger.draining():
                raise SuspendedError  # another worker makes it
            outcome = await self._made(item)
            self._report(item, outcome)
            if item.effectful:
                await context.recorder.flush()  # durable before its result is used
        refusal = outcome.text.partition("\n")[0]  # without what was done before
        if outcome.code in (NOT_APPROVED, REPEAT_REFUSED) and refusal not in self.execution.refused:
            self.execution.refused.append(refusal)
        return FinishedCall(item.name, item.asked.arguments or {}, outcome, id=item.id)

    def _recorded(self, item: RequestedCall) -> ToolOutcome | None:
        context = self.execution.context
        stored = context.journal.find(self.execution.path, "tool", self.position, item.index)
        if stored is not None:
            if item.name == FIND_TOOLS and self.access.tool_finder is not None:
                self.access.tool_finder.replay(self.execution, (self.position, item.index))
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
        context.budget.meter.add(tool_calls=1)
        if item.name == FIND_TOOLS and self.access.tool_finder is not None:
            place = self.position, item.index
            return await self.access.tool_finder.call(self.execution, self.toolbox, place, item.asked.arguments)
        if item.name == NOTE:
            return note_outcome(self.execution, item.asked.arguments)
        if item.name == READ_RESOURCE and item.call is None:
            read = resource_call(self.execution, (self.position, item.index), item.asked.arguments)
            if isinstance(read, ToolOutcome):
                return read
            return await self.access.gateway.call(read, context.budget.deadline, context.ledger)
        if item.call is None:
            return await self.access.artifact_tool.call(self.execution, item.asked.arguments)
        call = replace(item.call, on_notice=partial(self._notice, item))
        outcome = await self.access.gateway.call(call, context.budget.deadline, context.ledger)
        return await context.ledger.conclude(item.call, outcome) if item.effectful else outcome

    def _notice(self, item: RequestedCall, notice: ToolNotice) -> None:
        """Report what the server says while it answers a call."""
        execution = self.execution
        shared: dict[str, Any] = {"task_id": execution.task_id, "path": execution.path, "message": notice.message}
        if notice.progress is not None:
            said, total = notice.progress, notice.total
            event = ToolProgress(name=item.name, call_id=item.id, progress=said, total=total, **shared)
        else:
            event = ToolLog(name=item.name, call_id=item.id, level=notice.level, logger=notice.logger, **shared)
        execution.context.recorder.emit(event)

    def _announce(self) -> None:
        """Emit the calls, warn of repeated ones each time and of limits once in a task; record which are not made."""
        context, path, task_id = self.execution.context, self.execution.path, self.execution.task_id
        for index, count in repetitions(self.requested).items():
            name = self.requested[index].name
            text = f"{name} was asked for {count} times with the same arguments in one answer: it is called once."
            context.recorder.warn("identical_calls", text, task_id)
        refused = [item for item in self.requested if item.refused]
        if refused and (fault := refused[0].fault):
            context.journal.record(path, "tool", fault.to_json(), self.position, refused[0].index)
            if not self.execution.limit_reached:
                text = f"{self.execution.card.name}: {len(refused)} tool calls are not made. {fault.text}"
                context.recorder.warn("limit_reached", text, task_id)
        for item in self.requested:
            if item.repeats is None and not item.refused:
                arguments = dict(item.asked.arguments or {})
                start = ToolStart(name=item.name, args=arguments, task_id=task_id, path=path, call_id=item.id)
                context.recorder.emit(start)
        context.ledger.intend([call for item in self.requested if (call := item.effectful) is not None])

    def _report(self, item: RequestedCall, outcome: ToolOutcome) -> None:
        """Record the result, unless the ledger has it, and emit its event in the same batch: so it is emitted once."""
        context, path = self.execution.context, self.execution.path
        call = item.effectful
        state = context.ledger.state(call) if call else state_after_answer(outcome.observation, Effect.READ)
        if call is None:
            context.journal.record(path, "tool", outcome.to_json(), self.position, item.index)
        context.recorder.emit(
            ToolResult(
                name=item.name,
                result=outcome.text,
                call_id=item.id,
                status=outcome.status,
                state=state,
                artifact=outcome.artifact or None,
                simulated=outcome.simulated or None,
            )
        )
        for event in outcome.events:
            task_id = self.execution.task_id
            context.recorder.emit(ToolEvent(name=event, tool=item.name, call_id=item.id, task_id=task_id, path=path))
        context.recorder.step(
            Step(
                type="tool_call",
                description=f"{item.name}: {outcome.text[:_STEP_CHARS]}",
                metadata={
                    "tool_name": item.name,
                    "path": path,
                    "status": outcome.status,
                    "call_id": item.id,
                    "is_error": outcome.status == "failed",
                    "error": outcome.code or None,
                    "duration_ms": round(outcome.duration_ms, 1),
                },
            )
        )


def _use_of(
    item: RequestedCall, made: Mapping[int, FinishedCall], times: Mapping[int, int], *, first_refused: int
) -> FinishedCall:
    """Return the outcome of a call. `made` has those that repeat no other, by index; `times` how often they repeat."""
    first = item.index if item.repeats is None else item.repeats
    use = made[first]
    if item.refused:
        return replace(use, repeated=item.index != first_refused)
    if first not in times:
        return use
    note = f"[{item.name} was asked for {times[first]} times with these arguments in one answer. {_TREATED_AS_ONE}]"
    if item.repeats is None:
        return replace(use, outcome=replace(use.outcome, text=f"{use.outcome.text}\n{note}"))
    text = f"{use.outcome.text[:_REPEATED_CHARS]}\n{note}"
    return replace(use, outcome=replace(use.outcome, text=text), repeated=True)


async def run_concurrently[T](works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results in order. The first StarlingError cancels the others and is raised as itself.

    SuspendedError cancels no other: one is raised at the end, with the interrupts of all suspended coroutines, or with
    none where one of them is to go on in another process.
    """
    begun = list(works)
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_until_suspended(work)) for work in begun]
    except* StarlingError as errors:
        raise first_error(errors) from None
    finally:
        for work in begun:  # one whose task was cancelled before its first step was never awaited
            work.close()
    outcomes = [task.result() for task in tasks]
    if suspended := [outcome for outcome in outcomes if isinstance(outcome, SuspendedError)]:
        drained = not all(one.interrupts for one in suspended)
        raise SuspendedError(*({} if drained else dict.fromkeys(key for one in suspended for key in one.interrupts)))
    return [outcome for outcome in outcomes if not isinstance(outcome, SuspendedError)]


def first_error(errors: BaseExceptionGroup[StarlingError]) -> StarlingError:
    """Return the first error of a group, however deep it is."""
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    assert isinstance(first, StarlingError)
    return first


async def _until_suspended[T](work: Coroutine[Any, Any, T]) -> T | SuspendedError:
    try:
        return await work
    except SuspendedError as suspended:
        return suspended
