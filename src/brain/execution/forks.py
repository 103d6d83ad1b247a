"""What is different in the execution of a fork: its models, prompts and teams, its calls, and how it begins."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

from brain.agents.turn.pipeline import result_event
from brain.durability.inheritance import folded
from brain.run.context import RunContext
from brain.run.plan_report import planned_tasks
from brain.state import GraphState, TaskOutcome
from starling.core.events.run_events import Plan
from starling.core.forks import ForkOrigin
from starling.core.llm import ModelClient, ModelReply, ModelRequest, ModelRole, TextDelta
from starling.core.tool_calls import CallState
from starling.core.tools import ToolOutcome, Trial, TrialResult
from starling.infra.postgres.runs.ledger import LedgerRow

_KNOWN: Final = (CallState.SUCCEEDED, CallState.FAILED)


@dataclass(frozen=True, slots=True)
class ChosenModels:
    """Asks other models for some roles; requests that name their own model are left as they are."""

    inner: ModelClient
    by_role: Mapping[ModelRole, str]

    async def respond(self, request: ModelRequest) -> ModelReply:
        return await self.inner.respond(self._chosen(request))

    async def stream_respond(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        async for item in self.inner.stream_respond(self._chosen(request)):
            yield item

    def describe(self, role: ModelRole, *, supervisor: bool = False) -> str:
        return self.by_role.get(role) or self.inner.describe(role, supervisor=supervisor)

    def _chosen(self, request: ModelRequest) -> ModelRequest:
        return replace(request, model=request.model or self.by_role.get(request.role))


def trial_of(origin: ForkOrigin | None, sent: Sequence[LedgerRow]) -> Trial | None:
    """Return the trial that a fork is unless it is live; calls that its originals sent are its fixtures.

    A failure is one only where no equal call succeeded.
    """
    if origin is None or origin.live:
        return None
    succeeded, failed = ([call for call in sent if call.settled and call.state is state] for state in _KNOWN)
    fixtures = (
        TrialResult(call.tool, call.arguments, outcome=ToolOutcome.from_json(call.outcome or {}))
        for call in (*succeeded, *failed)
    )
    return Trial(tuple(fixtures), of_run=True)


def begin_fork(context: RunContext, state: GraphState) -> GraphState:
    """Return the state that a run begins with; the first execution of a fork emits what is inherited in it."""
    origin, inherited = context.run.forked_from, context.inherited
    if origin is None or not inherited:
        return state
    begun = folded(inherited, state, origin.at)
    if context.journal.knows("", "context"):
        return begun
    context.recorder.emit(
        Plan(
            version=begun["routing"]["plan_version"],
            plan=begun["plan"],
            tasks=planned_tasks(begun),
            thought_process=begun["routing"]["reason"],
            inherited=True,
        )
    )
    for entry in sorted(inherited, key=lambda entry: entry.position):
        if "task_id" in entry.data:
            context.recorder.emit(result_event(cast("TaskOutcome", entry.data), entry.path, inherited=True))
    return begun
