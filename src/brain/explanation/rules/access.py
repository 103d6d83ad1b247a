"""Calls that a key, a kill switch or a change of the registry did not allow, and tools that nobody has."""

from collections.abc import Iterator
from typing import Final

from brain.explanation.history import Call, History, Task
from brain.explanation.rules.incident import (
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
from brain.explanation.texts import quoted
from brain.registry.manifest import specialist_name

_SWITCHED_OFF: Final = " is switched off: "
_NO_TOOLS: Final = "may call none of its tools"


def revoked_grant(history: History, task: Task) -> Incident | None:
    """Explain a task that failed because the run's key may not, or may no longer, call what it needed."""
    reason = why_failed(history, task)
    calls = [call for call in failed_calls(task) if is_refused_to_key(history, call)]
    outside = task.agent in _outside_grant(history)
    if not calls and not outside and not is_about_key(history, reason):
        return None
    what = f"{call_text(calls[0])}: {said(calls[0].text)}" if calls else said(reason)
    text = f"{_what_became_of_key(history)} Agent {who(task)} failed at {task_text(task)}: {what}."
    return task_incident("revoked_grant", history, task, text, calls)


def is_refused_to_key(history: History, call: Call) -> bool:
    """Whether a call was not made because of the key that the run was requested with."""
    if call.code == "switched_off":
        return is_about_key(history, call.text)
    grant = history.rows.run.grant
    server = call.name.partition(".")[0]
    return (
        call.code == "not_allowed" and grant is not None and "." in call.name and not grant.permits(server, call.name)
    )


def is_about_key(history: History, text: str) -> bool:
    """Whether a reason is that the run's key was revoked, or has no tool of an agent in its grant."""
    run = history.rows.run
    named = bool(run.key_id) and run.key_id in text
    return named or (run.grant is not None and _NO_TOOLS in text)


def _outside_grant(history: History) -> set[str]:
    """Return the specialists of the run's epoch that its key does not reach."""
    grant = history.rows.run.grant
    if grant is None:
        return set()
    return {specialist_name(server) for server in history.rows.servers if not grant.reaches(server)}


def outside_grant_in(history: History, text: str) -> str:
    """Return a specialist outside of the grant that a text names, empty without one."""
    grant = history.rows.run.grant
    if grant is None:
        return ""
    hidden = [server for server in history.rows.servers if not grant.reaches(server)]
    return next((server for server in hidden if specialist_name(server) in text), "")


def key_text(history: History) -> str:
    """Return what is known of the run's key."""
    return _what_became_of_key(history)


def _what_became_of_key(history: History) -> str:
    run, key = history.rows.run, history.rows.key
    name = f"The key {quoted(key.name, 80)} ({run.key_id})" if key else f"The key {run.key_id or 'of the run'}"
    if key and key.revoked_at:
        return f"{name}, with which the run was requested, was revoked at {key.revoked_at:%Y-%m-%d %H:%M:%S} UTC."
    if run.grant is not None:
        granted = ", ".join(sorted({*run.grant.servers, *run.grant.tools})) or "nothing"
        return f"{name}, with which the run was requested, may call only {granted}."
    return f"{name}, with which the run was requested, may not call everything that the run needed."


def switched_off(history: History, task: Task) -> Incident | None:
    """Explain a task that failed because a kill switch stopped its server, its agent or its tenant."""
    calls = [call for call in failed_calls(task) if call.code == "switched_off"]
    reason = why_failed(history, task)
    if not calls and _SWITCHED_OFF not in reason:
        return None
    what = f"It could not call {call_text(calls[0])}: {said(calls[0].text)}" if calls else said(reason)
    text = f"A kill switch stopped agent {who(task)} in {task_text(task)}. {what}."
    return task_incident("switched_off", history, task, text, calls)


def stopped_calls(history: History) -> Iterator[Incident]:
    """Find calls of approved tasks that were not made because of the run's key, or of a kill switch."""
    for task in history.tasks.values():
        if task.status != "approved" or not history.counts(task):
            continue
        stopped = failed_calls(task)
        if any(is_refused_to_key(history, call) for call in stopped):
            rule = revoked_grant
        elif any(call.code == "switched_off" for call in stopped):
            rule = switched_off
        else:
            continue
        if (found := rule(history, task)) is not None:
            yield found


def changed_tool(history: History, task: Task) -> Incident | None:
    """Explain a task that failed because its tool or server was removed, changed or put in quarantine meanwhile."""
    calls = [call for call in failed_calls(task) if call.code in ("removed", "quarantined")]
    if not calls:
        return None
    text = (
        f"Agent {who(task)} called {call_text(calls[0])} in {task_text(task)}, but the tool is no longer offered as it "
        f"was: {said(calls[0].text)}."
    )
    return task_incident("changed_tool", history, task, text, calls)


def unmet_tool(history: History, task: Task) -> Incident | None:
    """Explain a task for which there was no agent, or whose agent asked for a tool that it does not have."""
    calls = [call for call in failed_calls(task) if call.code == "not_allowed"]
    if calls:
        text = f"Agent {who(task)} asked in {task_text(task)} for a tool that it does not have: {said(calls[0].text)}."
        return task_incident("unmet_tool", history, task, text, calls)
    if code_of(task) != "agent_unavailable":
        return None
    text = f"No agent could take {task_text(task)}, which was given to {who(task)}: {said(why_failed(history, task))}."
    return task_incident("unmet_tool", history, task, text)
