"""Servers that could not be used: degraded from the beginning, stopped, silent, or failing behind a tool."""

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
from brain.explanation.texts import leaves as values_of
from brain.explanation.texts import mentions
from brain.registry.manifest import specialist_name

SERVER_CODES: Final = frozenset({"server_unavailable", "timeout", "memory_limit"})
_UNAVAILABLE: Final = "MCP server '"  # as ServerUnavailableError begins
_OUT_OF_TIME: Final = "The run's time is used up."


def unreachable_server(history: History, task: Task) -> Incident | None:
    """Explain a task whose server could not be reached, did not answer in time, or was degraded before it began."""
    calls = [call for call in failed_calls(task) if call.code in SERVER_CODES]
    calls = [call for call in calls if not call.text.startswith(_OUT_OF_TIME)]
    if calls:
        return _failed_call(history, task, calls)
    if code_of(task) != "agent_unavailable":
        return None
    server, reason = degraded_server_of(history, task.agent), why_failed(history, task)
    if not server and not reason.startswith(_UNAVAILABLE):
        return None
    name = f"The server {server}" if server else "The server"
    text = f"{name} of agent {who(task)} was degraded, so {task_text(task)} could not be done: {said(reason)}."
    return task_incident("degraded_server", history, task, text)


def failing_backend(history: History, task: Task) -> Incident | None:
    """Explain a task whose tool answered with an error of the service behind it, whatever it was asked."""
    calls = [call for call in failed_calls(task) if call.code in ("tool_error", "", "invalid_result")]
    calls = [
        call
        for call in calls
        if history.english.is_infrastructure(call.text) and not _is_about_its_values(history, call)
    ]
    return _failed_call(history, task, calls) if calls else None


def _is_about_its_values(history: History, call: Call) -> bool:
    return history.english.is_about_values(call.text) and any(
        mentions(call.text, value) for _, value in values_of(call.arguments)
    )


def _failed_call(history: History, task: Task, calls: list[Call]) -> Incident:
    call = calls[0]
    how = "did not answer in time" if call.code == "timeout" else "could not do its work"
    text = (
        f"The server {call.name.partition('.')[0]} {how} when agent {who(task)} called {call_text(call)} in "
        f"{task_text(task)}: {said(call.text)}."
    )
    return task_incident("degraded_server", history, task, text, calls)


def degraded_server_of(history: History, agent: str) -> str:
    """Return the server of an agent, or the one that a name means, if it was degraded in the run's epoch."""
    degraded = [name for name, state in history.rows.servers.items() if state == "degraded"]
    return next((name for name in degraded if agent in (name, specialist_name(name))), "")


def server_of(history: History, agent: str) -> str:
    """Return the server of the run's epoch that a name of an agent means, empty without one."""
    return next((name for name in history.rows.servers if agent in (name, specialist_name(name))), "")


def degraded_server_in(history: History, text: str) -> str:
    """Return a server that was degraded in the run's epoch and that a text names, empty without one."""
    degraded = [name for name, state in history.rows.servers.items() if state == "degraded"]
    return next((name for name in degraded if mentions(text, name) or mentions(text, specialist_name(name))), "")


def is_unavailable(reason: str) -> bool:
    """Whether a reason is the platform's own about a server that can't be used."""
    return reason.startswith(_UNAVAILABLE) or reason == "The server was removed."
