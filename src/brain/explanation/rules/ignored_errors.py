"""Errors of tools that an agent passed over: its result was approved nevertheless."""

from collections.abc import Iterable, Iterator
from typing import Final

from brain.explanation.history import Attempt, Call, History, Task
from brain.explanation.rules.incident import Incident, call_text, said, task_incident, task_text, who
from brain.explanation.rules.servers import SERVER_CODES
from brain.explanation.texts import leaves

_OF_TOOLS: Final = SERVER_CODES | {"", "tool_error", "invalid_arguments", "invalid_result", "removed", "quarantined"}


def ignored_tool_error(history: History) -> Iterable[Incident]:
    """Find errors that an approved result passed over, besides answers that are no errors."""
    for task, attempt, call in passed_over(history):
        sound = [one for one in attempt.calls if one is not call and not _is_error(history, one)]
        if attempt.verdict is not None and not sound:
            continue  # the reviewer approved what is nothing but an error
        went_on = f"went on with {sound[-1].name}" if sound else "had nothing else"
        text = (
            f"Agent {who(task)} passed over an error in {task_text(task)}: {call_text(call)} answered "
            f"{said(call.text)}; the agent {went_on}, and the result was approved."
        )
        yield task_incident("ignored_tool_error", history, task, text, [call], seq=call.end or call.seq)


def passed_over(history: History) -> Iterator[tuple[Task, Attempt, Call]]:
    """Yield the calls of approved results that answered with an error and were neither repeated nor replaced."""
    for task in history.tasks.values():
        last = task.last
        if task.status != "approved" or last is None or not last.attempts or not history.counts(task):
            continue
        attempt = last.attempts[-1]
        for call in attempt.calls:
            if _is_error(history, call) and not any(_makes_up_for(history, later, call) for later in attempt.calls):
                yield task, attempt, call


def _is_error(history: History, call: Call) -> bool:
    """Whether a tool answered with an error; what people, keys and limits stopped is no answer of a tool."""
    if call.simulated or "." not in call.name:
        return False
    return call.code in _OF_TOOLS if call.failed else history.english.looks_like_error(call.text)


def _makes_up_for(history: History, later: Call, call: Call) -> bool:
    """Whether a call in a later answer did what a failed one was to do: of the same tool, or about the same thing."""
    if later.place[0] <= call.place[0] or _is_error(history, later):
        return False
    return later.name == call.name or bool(_values(later) & _values(call))


def _values(call: Call) -> set[str]:
    return {str(value).casefold() for _, value in leaves(call.arguments) if value not in (None, "", True, False)}
