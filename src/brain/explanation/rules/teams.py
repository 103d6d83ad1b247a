"""Members of teams that failed, so that their team has no answer, or lacks a part of it."""

from brain.explanation.history import History, Task
from brain.explanation.rules.incident import Incident, Reference, said, task_incident, task_text, who, why_failed


def failed_team_member(history: History, task: Task) -> Incident | None:
    """Explain a team's task that failed because a member's did."""
    failed = [inner for inner in history.inside(task.place) if inner.status == "failed" and history.counts(inner)]
    if not failed:
        return None
    return _incident(history, task, failed[0], "so the team has no answer")


def missing_part(history: History, inner: Task) -> Incident:
    """Explain what a team's answer lacks: the part of a member that failed, though the team was approved."""
    return _incident(history, history.tasks[inner.star], inner, "so the team's answer lacks its part")


def _incident(history: History, task: Task, inner: Task, became: str) -> Incident:
    last = inner.last
    calls = [call for call in last.calls if call.failed][:1] if last else []
    tool = f" of {calls[0].name}" if calls else ""
    text = (
        f"Member {who(inner)} of the team {who(task)} failed at {task_text(inner)}, {became}: "
        f"the reason{tool} was {said(why_failed(history, inner))}."
    )
    found = task_incident("failed_team_member", history, inner, text, calls)
    return found.also(Reference("task", task.place))
