"""Failures that need no search: their code says what happened."""

from types import MappingProxyType
from typing import Final

from brain.explanation.history import History, Task
from brain.explanation.rules.incident import (
    CauseCode,
    Incident,
    call_text,
    code_of,
    failed_calls,
    said,
    task_incident,
    task_text,
    who,
    why_failed,
)
from starling.core.artifacts import READ_ARTIFACT

_OUT_OF_TIME: Final = "The run's time is used up."
_OF_CODE: Final = MappingProxyType[str, tuple[CauseCode, str]](
    {
        "deadline_exceeded": ("deadline_exceeded", "There was no time left for"),
        "journal_diverged": ("journal_diverged", "After a restart the recorded answers no longer fit"),
        "runtime_unavailable": ("runtime_failed", "The worker lacks the runtime of"),
        "runtime_failed": ("runtime_failed", "The runtime failed at"),
        "over_limit": ("limit_reached", "A limit on tool calls ended"),
        "invalid_result": ("invalid_result", "The tool's answer could not be used in"),
        "capability_gap": ("unmet_tool", "No server has what was needed for"),
        "conflict": ("build_failed", "No team came of"),
        "forbidden": ("build_failed", "No team came of"),
        "goal_unclear": ("build_failed", "No team came of"),
        "internal": ("internal_error", "A fault of the platform itself ended"),
        "not_found": ("build_failed", "No team came of"),
        "proof_failed": ("build_failed", "No team came of"),
        "quota_exceeded": ("build_failed", "No team came of"),
        "team_invalid": ("build_failed", "No team came of"),
    }
)


_UNREAD: Final = MappingProxyType[str, tuple[CauseCode, str]](
    {
        "tool_error": ("unreachable_database", "Postgres could not be reached for an earlier result"),
        "removed": ("tool_failed", "An earlier result was no longer kept"),
    }
)


def by_code(history: History, task: Task) -> Incident | None:
    """Explain a task by the code of its failure alone."""
    late = any(call.text.startswith(_OUT_OF_TIME) for call in failed_calls(task))
    found = _OF_CODE.get("deadline_exceeded" if late else code_of(task))
    if found is None:
        return None
    code, begin = found
    calls = failed_calls(task)
    what = f"{call_text(calls[0])}: {said(calls[0].text)}" if calls else said(why_failed(history, task))
    return task_incident(code, history, task, f"{begin} {task_text(task)} of agent {who(task)}: {what}.", calls)


def unread_artifact(history: History, task: Task) -> Incident | None:
    """Explain a task that could not read the whole of an earlier result: Postgres was away, or it was deleted."""
    calls = [call for call in failed_calls(task) if call.name == READ_ARTIFACT and call.code in _UNREAD]
    if not calls:
        return None
    code, begin = _UNREAD[calls[0].code]
    text = f"{begin} when agent {who(task)} read it in {task_text(task)}: {said(calls[0].text)}."
    return task_incident(code, history, task, text, calls)


def tool_failed(history: History, task: Task) -> Incident | None:
    """Explain a task whose tool failed for a reason that nothing else shows."""
    calls = failed_calls(task)
    if not calls:
        return None
    text = f"Agent {who(task)} called {call_text(calls[0])} in {task_text(task)}, which failed: {said(calls[0].text)}."
    return task_incident("tool_failed", history, task, text, calls)


def unable_agent(history: History, task: Task) -> Incident | None:
    """Explain a task that its agent said it can't do."""
    if code_of(task) != "unable" and (not task.last or task.last.calls or code_of(task) not in ("", "rejected")):
        return None
    text = f"Agent {who(task)} said that it can't do {task_text(task)}: {said(why_failed(history, task))}."
    return task_incident("unable_agent", history, task, text)


def any_failure(history: History, task: Task) -> Incident | None:
    """Explain a task by what is kept of its end."""
    code = f" ({code_of(task)})" if code_of(task) else ""
    text = f"Agent {who(task)} failed at {task_text(task)}{code}: {said(why_failed(history, task))}."
    return task_incident("failed_task", history, task, text)
