"""What the memory of skills is told of a task that ended."""

from collections.abc import Sequence

from brain.agents.turn.agent_runtime import TaskExecution, ToolUse
from brain.skills.generalization import MadeCall
from brain.skills.memory import FinishedTask
from brain.skills.skill import RecalledSkill
from brain.state import TaskOutcome


def finished_task(execution: TaskExecution, outcome: TaskOutcome) -> FinishedTask:
    """Return what is remembered of a task: only succeeded calls of servers' tools count."""
    dispatch, own = execution.dispatch, {tool.full_name for tool in execution.card.tools}
    calls = [
        MadeCall(use.name, use.arguments, use.outcome.text)
        for use in execution.result_uses
        if use.name in own and use.outcome.status == "succeeded" and not use.repeated
    ]
    return FinishedTask(
        tenant=execution.context.run.tenant,
        path=execution.path,
        card=execution.card,
        request=dispatch["input_request"],
        task=execution.task,
        recalled=execution.skills,
        calls=calls,
        output=outcome["output"],
        code=outcome.get("code", "rejected"),
        results=[result["output"] for result in dispatch["needed"]],
        seen=[use.outcome.text for use in execution.uses],
        uncertain=bool(outcome.get("uncertain")),
    )


def was_followed(execution: TaskExecution, done: FinishedTask, skill: RecalledSkill) -> bool:
    """Whether one attempt made the calls of a skill in order: the approved one; of a failed task any, also in vain."""
    return done.followed(skill) if done.output else any(_made(uses, skill) for uses in execution.uses_by_attempt)


def _made(uses: Sequence[ToolUse], skill: RecalledSkill) -> bool:
    return skill.was_followed([(use.name, use.arguments) for use in uses])
