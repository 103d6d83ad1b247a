"""The end of runs that are not executed any further: open calls, tasks and interrupts are closed."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final, cast

from brain.durability.attempt_outcomes import AttemptOutcomes
from brain.durability.changes import changes_of
from brain.durability.checkpointer import RunCheckpoints
from brain.interrupts.budget import Meter
from brain.lifecycle.finalization import RunFinalizer
from brain.state import GraphState, TaskOutcome, approved, initial_state
from starling.core.events.run_events import Change, Failure, TaskResult, ToolResult
from starling.core.json import canonical
from starling.core.llm import TokenUsage
from starling.core.runs import FinalStatus, RunResult
from starling.core.task_paths import is_within
from starling.core.tool_calls import UNCERTAIN, CallState, Observation
from starling.core.tools import OVER_LIMIT, ToolOutcome
from starling.infra.postgres.engine import Engine
from starling.infra.postgres.runs.acceptance import Claim, RunKey
from starling.infra.postgres.runs.broadcast import Broadcast
from starling.infra.postgres.runs.ledger import LedgerReader, LedgerRow
from starling.infra.postgres.runs.reader import RunReader
from starling.infra.postgres.runs.termination import OpenCall, TerminationRepository, close_open_work
from starling.infra.postgres.runs.writer import JournalEntry, RunWriter

CANCELLED: Final = "The run was cancelled."
LEFT_OPEN: Final = "Its task failed before this was resumed."
_UNKNOWN: Final = "Whether the call was done is unknown."
_RETRY_SECONDS = 10.0  # to retry while Postgres is away: a caller waits for the answer
_ARGUMENT_CHARS = 300
_OUTPUT_CHARS = 600


@dataclass(frozen=True, slots=True)
class RunTerminator:
    """Ends runs early, whether or not a worker executes them."""

    engine: Engine
    broadcast: Broadcast
    reader: RunReader
    ending: RunFinalizer

    async def park(self, claim: Claim, *, blind: bool) -> RunResult:
        """End a claimed run that crashed its workers too often; with `blind`, without reading its progress.

        Raises as `stop` does.
        """
        message = (
            f"The run was parked: {claim.run.crashes} times its worker went down, or lost it, in the middle. Look at "
            "that worker's log for why, then send the request again; `crashes_per_run` says how often a run is tried."
        )
        return await self.stop(claim, "parked", Failure(code="parked", message=message), blind=blind)

    async def stop(
        self,
        claim: Claim,
        status: FinalStatus = "cancelled",
        failure: Failure | None = None,
        *,
        blind: bool = False,
    ) -> RunResult:
        """End a run that no worker executes, under a claim of its own.

        Raises LeaseLostError if it was claimed since, DatabaseUnavailableError.
        """
        writer = RunWriter(self.engine, claim, self.broadcast, retry_seconds=_RETRY_SECONDS)
        try:
            return await self.end(writer, status, failure, blind=blind)
        finally:
            await writer.close()

    async def end(
        self,
        writer: RunWriter,
        status: FinalStatus = "cancelled",
        failure: Failure | None = None,
        *,
        blind: bool = False,
    ) -> RunResult:
        """End a run with its own writer. Raises as `stop` does."""
        why = failure.message if failure else CANCELLED
        await writer.flush()  # its progress so far counts
        key = RunKey(writer.run.tenant, writer.run.id)
        entries = () if blind else await self.reader.journal(key)
        reached = initial_state(writer.run.input) if blind else await self.last_state(writer)
        calls = await LedgerReader(self.engine).calls(key)
        running = {task["id"] for task in reached["tasks"] if task["status"] == "running"}  # their round had not ended
        own = [entry for entry in entries if entry.kind == "result" and "/" not in entry.path]  # not those of teams
        known = [cast("TaskOutcome", entry.data) for entry in own if entry.data.get("task_id") in running]
        results = [*reached["results"], *(outcome for outcome in known if outcome not in reached["results"])]
        meter, state = Meter(), cast("GraphState", {**reached, "results": results})
        count_usage(meter, entries, sum(call.state is not CallState.INTENDED for call in calls))
        left = await self.close(writer, why, status, failure.code if failure else status)
        state["reply"] = _reply(why, state, left, calls)
        return await self.ending.end(writer, state, meter, failure, status, changes_of(calls, AttemptOutcomes(entries)))

    async def changes(self, writer: RunWriter) -> Sequence[Change]:
        """Return the calls that changed something, or may have, of a run whose context couldn't be read."""
        key = RunKey(writer.run.tenant, writer.run.id)
        calls, entries = await LedgerReader(self.engine).calls(key), await self.reader.journal(key)
        return changes_of(calls, AttemptOutcomes(entries))

    async def close(self, writer: RunWriter, why: str, by: FinalStatus, code: str | None = None) -> Sequence[OpenCall]:
        """Give each open call and task a result and cancel open interrupts, with the next batch.

        `by` is how the run ends, `code` the code of the run where its end is what cuts tasks off. Returns the calls
        that were open.
        """
        found = await self._emit_results(writer, why, code)
        lost = ToolOutcome(Observation.INTERRUPTED, f"{why} {_UNKNOWN}", code=by)
        writer.add(lambda: close_open_work(lost.to_json(), by))
        return found

    async def close_inside(self, writer: RunWriter, task_path: str) -> None:
        """Give each open call of a task, and each open task inside it, a result, with the next batch."""
        await self._emit_results(writer, LEFT_OPEN, None, inside=task_path)

    async def _emit_results(
        self, writer: RunWriter, why: str, code: str | None, inside: str | None = None
    ) -> Sequence[OpenCall]:
        await writer.flush()
        repository, key = TerminationRepository(self.engine), RunKey(writer.run.tenant, writer.run.id)
        calls, tasks = await repository.open_calls(key), await repository.open_tasks(key)
        found = [call for call in calls if inside is None or is_within(call.path, inside)]
        for call in found:
            writer.emit(_answer(call, why))
        for task in tasks:
            if inside is None or (is_within(task.path, inside) and task.path != inside):
                writer.emit(TaskResult(**asdict(task), status="failed", summary=why, artifacts=[], code=code))
        return found

    async def last_state(self, writer: RunWriter) -> GraphState:
        """Return the state in the last checkpoint."""
        found = await RunCheckpoints(self.engine, writer).saver().stored()
        values = found.checkpoint["channel_values"] if found else {}
        return cast("GraphState", {**initial_state(writer.run.input), **values})


def count_usage(meter: Meter, entries: Sequence[JournalEntry], calls: int) -> None:
    """Add the usage of earlier executions: by the journal, and so many calls of the ledger."""
    meter.tool_calls += calls
    for entry in entries:
        if entry.kind == "answer":
            meter.model_calls += 1 + entry.data.get("failed_attempts", 0)
            meter.tokens += TokenUsage(**entry.data["usage"])
        elif entry.kind == "failed_call":
            meter.model_calls += entry.data["failed_attempts"]
        elif entry.kind == "tool" and entry.data.get("code") != OVER_LIMIT:
            meter.tool_calls += 1


def _reply(why: str, state: GraphState, open_calls: Sequence[OpenCall], calls: Sequence[LedgerRow]) -> str:
    """Return the reply of the ended run: why it ended, and what was done, changed and cut off."""
    done = [f"- {outcome['task_id']}: {outcome['output'][:_OUTPUT_CHARS]}" for outcome in approved(state).values()]
    open_ids = {call.call_id for call in open_calls}
    ended = [call for call in calls if call.call_id not in open_ids and not call.reads]
    in_results = approved(state).keys()
    changed = [
        _line(call)
        for call in ended
        if call.state is CallState.SUCCEEDED and not any(is_within(call.path, task) for task in in_results)
    ]
    uncertain = [_line(call) for call in ended if call.state in UNCERTAIN]
    left = [f"- {call.name} {canonical(call.arguments)[:_ARGUMENT_CHARS]}: {_fate(call)}" for call in open_calls]
    titled = {"Done before:": done, "Changed already:": changed, "May have been done:": uncertain, "Cut off:": left}
    return "\n".join([why, *(line for title, found in titled.items() if found for line in (title, *found))])


def _answer(call: OpenCall, why: str) -> ToolResult:
    """Return the result of an open call: the one in the ledger if there is one."""
    state, text, artifact = None, f"{why} {_fate(call)}", None
    if call.state in (CallState.SUCCEEDED, CallState.REUSED, CallState.FAILED, CallState.UNUSABLE):
        state, text, artifact = CallState(call.state), call.text or "", call.artifact or None
    elif call.state in (CallState.DISPATCHED, CallState.IN_DOUBT):
        state = CallState.IN_DOUBT
    status = "succeeded" if state in (CallState.SUCCEEDED, CallState.REUSED) else "failed"
    return ToolResult(name=call.name, result=text, call_id=call.call_id, status=status, state=state, artifact=artifact)


def _line(call: LedgerRow) -> str:
    return f"- {call.tool} {canonical(call.arguments)[:_ARGUMENT_CHARS]}: {call.text[:_OUTPUT_CHARS]}"


def _fate(call: OpenCall) -> str:
    match call.state:
        case CallState.DISPATCHED | CallState.IN_DOUBT:
            return _UNKNOWN
        case CallState.INTENDED:
            return "The call was not made."
        case CallState.SUCCEEDED:
            return "The call was done."
        case CallState.UNUSABLE:
            return "The call was done or may have been done."
        case _:
            return "The call was cut off."
