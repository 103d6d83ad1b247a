"""The runtime of teams: a task is the request of a star of its own, inside the run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from langgraph.errors import GraphDrained

from brain.agents.runtime import AttemptOutput, MemberResult, TaskExecution
from brain.interrupts.budget import Meter, RunBudget
from brain.lifecycle.citations import without_citations
from brain.registry.cards import Roster
from brain.retrieval.search import AgentSearch
from brain.run_context import RunContext
from brain.state import GraphState, TaskOutcome, approved, initial_state, is_answered_directly
from brain.stream_buffer import StreamBuffer
from starling.core.clock import Clock, Deadline
from starling.core.errors import SuspendedError
from starling.core.stars import MAIN_STAR, StarSpec
from starling.core.task_paths import star_path


class StarExecution(Protocol):
    """Executes a star to its end."""

    async def run(self, spec: StarSpec, context: RunContext, initial: GraphState) -> GraphState:
        """Return the state that it ends in. Raises SuspendedError, GraphDrained."""
        ...


@dataclass(frozen=True, slots=True)
class TeamRuntime:
    """Gives a task to the supervisor of a team, whose members work on it; its answer is the attempt's output."""

    stars: StarExecution
    clock: Clock

    async def attempt(self, execution: TaskExecution) -> AttemptOutput:
        """Make one attempt with the star of the agent's card, or return what an earlier process recorded of it.

        Raises SuspendedError while a member waits for an answer, or while this process drains.
        """
        execution.position += 1
        path = star_path(execution.path, execution.position)
        journal = execution.context.journal
        recorded = journal.find(f"{path}.star", "result")
        if recorded is None:
            recorded = _report(await self._run(execution, path))
            journal.record(f"{path}.star", "result", recorded)
        return _output(execution, recorded)

    async def _run(self, execution: TaskExecution, path: str) -> GraphState:
        star, dispatch = execution.card.star or MAIN_STAR, execution.dispatch
        given = [*_renamed("given", dispatch["needed"]), *_renamed("earlier", execution.inner)]
        request = _request(execution.task, execution.rejected_for)
        initial: GraphState = {**initial_state(request, dispatch["messages"]), "given": given}
        try:
            return await self.stars.run(star, self._context(execution, star, path), initial)
        except GraphDrained:
            raise SuspendedError from None  # the tasks beside it end their own step first

    def _context(self, execution: TaskExecution, star: StarSpec, path: str) -> RunContext:
        """Return the context of the star: the run's, narrowed to the team's members, limits and path."""
        outer = execution.context
        recorder, budget = outer.recorder.inside(path), self._budget(outer, star, path)
        roster = Roster(execution.card.members)
        decisions = min(outer.allowance.supervisor_calls, star.limits.iterations or outer.allowance.supervisor_calls)
        return replace(
            outer,
            allowance=replace(outer.allowance, supervisor_calls=decisions),
            roster=roster,
            search=AgentSearch(outer.run.tenant, outer.search.roster, roster),
            recent_agents=(),
            recorder=recorder,
            model=replace(outer.model, recorder=recorder, budget=budget),
            budget=budget,
            path=path,
            teams=(*outer.teams, star.name),
        )

    def _budget(self, outer: RunContext, star: StarSpec, path: str) -> RunBudget:
        """Return what is left of the run's budget, and not more than the team's limits."""
        whole, seconds = outer.budget, star.limits.seconds
        deadline = whole.deadline if seconds is None else Deadline(self.clock, whole.deadline.cap(seconds))
        meter = Meter(tokens=outer.journal.tokens_inside(path), whole=whole.meter)
        return RunBudget(deadline, meter, whole.interrupts, star.limits.tokens, whole)


def _request(task: str, rejected_for: Sequence[str]) -> str:
    """Return what the team is asked: the task, and why its last answer was no result."""
    if not rejected_for:
        return task
    return (
        f"{task}\n\nAn earlier answer was rejected: {' '.join(rejected_for)} Do it differently. "
        "What was done for it is among the results: what was changed stays changed, so don't repeat it."
    )


def _renamed(source: str, outcomes: Sequence[TaskOutcome]) -> list[TaskOutcome]:
    """Return outcomes of tasks outside the star, or of an earlier attempt, under ids that no task of it has."""
    return [
        {**outcome, "task_id": f"{source}{number}:{outcome['task_id']}"}
        for number, outcome in enumerate(outcomes, start=1)
    ]


def _report(state: GraphState) -> Mapping[str, Any]:
    """Return what a star came to, as JSON: its answer, whether it is one, and the outcomes of its tasks."""
    failed = bool(state.get("failure")) or not (approved(state) or is_answered_directly(state))
    tasks = {task["id"]: task["task"] for task in state["tasks"]}
    codes = [outcome.get("code", "") for outcome in state["results"] if outcome["status"] == "failed"]
    code = state.get("failure_code", "") or (codes[-1] if codes else "")
    return {"reply": state["reply"], "failed": failed, "code": code, "outcomes": state["results"], "tasks": tasks}


def _output(execution: TaskExecution, report: Mapping[str, Any]) -> AttemptOutput:
    outcomes: list[TaskOutcome] = report["outcomes"]
    execution.inner += outcomes
    execution.kept |= {record["id"]: record for outcome in outcomes for record in outcome.get("artifacts", ())}
    execution.refused += [reason for outcome in outcomes for reason in outcome.get("refused", ())]
    if report["failed"]:
        return AttemptOutput(_why_not(outcomes) or report["reply"], unable=True, code=report["code"])
    approved_ones = [outcome for outcome in outcomes if outcome["status"] == "approved"]
    inner = tuple(MemberResult(report["tasks"].get(one["task_id"], ""), one) for one in approved_ones)
    # its sources are results inside the team, which nobody outside can see
    text = without_citations(report["reply"], len(approved_ones), [outcome["output"] for outcome in approved_ones])
    if execution.dispatch["whole_plan"] and not any(outcome["tools"] for outcome in approved_ones):
        with StreamBuffer(execution.context.recorder, _message_id(execution)) as buffer:
            buffer.write(text)
    return AttemptOutput(text, inner=inner)


def _message_id(execution: TaskExecution) -> str:
    return f"{execution.path}.{execution.position}.{execution.context.run.fence}"


def _why_not(outcomes: Sequence[TaskOutcome]) -> str:
    """Return why each member failed, as its last try says it."""
    reasons = {outcome["agent"]: outcome["reason"] for outcome in outcomes if outcome["status"] == "failed"}
    return " ".join(f"{member}: {reason}" for member, reason in reasons.items())
