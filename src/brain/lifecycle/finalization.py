"""The end of a run: its result, its last event and the states on its branch."""

from collections.abc import Sequence
from dataclasses import dataclass

from brain.interrupts.budget import Meter
from brain.lifecycle.fallback_answer import NO_RESULT, reply_without_results, with_changes
from brain.state import GraphState, approved, is_answered_directly
from starling.core.conversation.turn import states_of
from starling.core.events.run_events import Change, Citation, Degradation, Done, Failure
from starling.core.run_document.document import RunDocument
from starling.core.runs import FinalStatus, RunResult, Step
from starling.infra.postgres.runs.acceptance import RunRepository
from starling.infra.postgres.runs.conversations import push_turn
from starling.infra.postgres.runs.documents import RunDocumentRepository
from starling.infra.postgres.runs.feedback import STATUS_UNSENT
from starling.infra.postgres.runs.termination import DELETE_PROGRESS
from starling.infra.postgres.runs.writer import Clause, DocumentClause, RunWriter


@dataclass(frozen=True, slots=True)
class RunFinalizer:
    """Ends runs, for a worker and for the termination of runs that no worker executes."""

    repository: RunRepository
    documents: RunDocumentRepository
    sends_status: bool  # whether Langfuse is to get the status of the runs

    async def end(
        self,
        writer: RunWriter,
        state: GraphState,
        meter: Meter,
        failure: Failure | None = None,
        status: FinalStatus | None = None,
        changes: Sequence[Change] = (),
    ) -> RunResult:
        """End the run in one transaction and return its result; `status` overrides the one of the state.

        `changes` are the calls that changed something, or may have.

        Raises LeaseLostError, DatabaseUnavailableError.
        """
        result = _result(state, failure, meter, status, changes)
        if failure:
            writer.emit(failure)
        ended = {"status": result.status, "is_error": result.status != "succeeded"}
        writer.step(Step(type="summary", description=result.reply[:300], metadata=ended))
        last = Done.model_validate(result.model_dump(exclude={"plan"}))
        # a run that succeeds without a clarification resets the count of clarifications
        unasked = result.status == "succeeded" and not state.get("clarifications")
        agents = [task["agent"] for task in state["tasks"]]

        def turn(document: RunDocument) -> Clause:
            return push_turn(writer.run, states_of(document), agents=agents, unasked=unasked)

        also = [DELETE_PROGRESS, *([STATUS_UNSENT] if self.sends_status else [])]
        await writer.end(result, last, self.repository, also, DocumentClause(self.documents.of_states, turn))
        return result


def _result(
    state: GraphState, failure: Failure | None, meter: Meter, status: FinalStatus | None, changes: Sequence[Change]
) -> RunResult:
    broken = failure.message if failure else state["failure"]
    answered = bool(approved(state)) or is_answered_directly(state)  # also with degraded parts
    reached: FinalStatus = "succeeded" if answered and not broken else "failed"
    ended = status or ("budget_exhausted" if meter.exhausted and not failure else reached)
    code = None
    if ended != "succeeded":
        unfailed = (state.get("failure_code") or NO_RESULT) if ended == "failed" else ended
        code = failure.code if failure else unfailed
    reply = state["reply"] or broken or reply_without_results(state)
    if status is None:  # else the reply has them, as part of how far the run was
        reply = with_changes(reply, changes, approved=ended == "failed")
    return RunResult(
        status=ended,
        reply=reply,
        code=code,
        plan=state["plan"],
        citations=[Citation.model_validate(item) for item in state["citations"]],
        assumptions=state["assumptions"],
        degraded=[Degradation(part=item["part"], reason=item["reason"]) for item in state["degraded"]],
        usage=meter.usage(),
        effects=list(changes),
        missing=_missing(state),
    )


def _missing(state: GraphState) -> frozenset[str]:
    """Return the codes of why parts of the answer are missing."""
    failed = {it["task_id"]: it.get("code", "rejected") for it in state["results"] if it["status"] == "failed"}
    parts = [(part.get("code"), part.get("task_id")) for part in state["degraded"]]
    return frozenset(code or failed.get(task or "", "not_reached" if task else "unserved") for code, task in parts)
