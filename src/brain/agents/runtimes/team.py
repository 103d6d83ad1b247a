"""The runtime of teams: a task is the request of a star of its own, inside the run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from brain.agents.runtimes.team_star import StarExecution, TeamStars, answer_text, star_report, why_failed
from brain.agents.turn.agent_runtime import AttemptOutput, MemberResult, TaskExecution
from brain.run.stream_buffer import StreamBuffer
from brain.state import GraphState, TaskOutcome, initial_state
from starling.core.clock import Clock
from starling.core.task_paths import star_path


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
            recorded = star_report(await self._run(execution, path))
            journal.record(f"{path}.star", "result", recorded)
        return _output(execution, recorded)

    async def _run(self, execution: TaskExecution, path: str) -> GraphState:
        card, dispatch = execution.card, execution.dispatch
        given = [*_renamed("given", dispatch["needed"]), *_renamed("earlier", execution.inner)]
        request = _request(execution.task, execution.rejected_for)
        initial: GraphState = {**initial_state(request, dispatch["messages"]), "given": given}
        teams = TeamStars(self.stars, self.clock)
        return await teams.run(card, teams.context(execution.context, card, path), initial)


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


def _output(execution: TaskExecution, report: Mapping[str, Any]) -> AttemptOutput:
    outcomes: list[TaskOutcome] = report["outcomes"]
    execution.inner += outcomes
    execution.kept |= {record["id"]: record for outcome in outcomes for record in outcome.get("artifacts", ())}
    execution.refused += [reason for outcome in outcomes for reason in outcome.get("refused", ())]
    if report["failed"]:
        return AttemptOutput(why_failed(report), unable=True, code=report["code"])
    approved_ones = [outcome for outcome in outcomes if outcome["status"] == "approved"]
    inner = tuple(MemberResult(report["tasks"].get(one["task_id"], ""), one) for one in approved_ones)
    text = answer_text(report)
    if execution.dispatch["whole_plan"] and not any(outcome["tools"] for outcome in approved_ones):
        with StreamBuffer(execution.context.recorder, _message_id(execution)) as buffer:
            buffer.write(text)
    return AttemptOutput(text, inner=inner)


def _message_id(execution: TaskExecution) -> str:
    return f"{execution.path}.{execution.position}.{execution.context.run.fence}"
