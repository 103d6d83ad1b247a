"""Arguments that a tool refused, or that brought the answer to another question."""

import re
from collections.abc import Sequence
from typing import Final

from brain.explanation.history import Call, History, Task
from brain.explanation.rules.incident import (
    Incident,
    call_text,
    failed_calls,
    said,
    task_incident,
    task_text,
    value_text,
    who,
)
from brain.explanation.texts import is_grounded, leaves, mentions, shares_word
from starling.core.json import canonical

_IDENTIFIER: Final = re.compile(r"(?<![\w.-])(?=[\w.-]*[A-Za-z])(?=[\w.-]*\d)[\w.-]*\w")  # letters and digits
_LETTER: Final = re.compile(r"[A-Za-z]")
_DIGITS: Final = re.compile(r"\d+")


def wrong_argument(history: History, task: Task) -> Incident | None:
    """Explain a task whose tool refused an argument: by its schema, by its own error, or as other values show."""
    known = history.known_texts(task)
    calls = [call for call in failed_calls(task) if _refused(history, call, known)]
    if not calls:
        return None
    call, wrong = calls[0], ungrounded(calls[0], known)
    whence = f" {_named(wrong)} is neither in the task nor in the request." if wrong else ""
    text = (
        f"Agent {who(task)} called {call_text(call)} in {task_text(task)}; the tool refused these arguments: "
        f"{said(call.text)}.{whence}"
    )
    return task_incident("wrong_argument", history, task, text, calls)


def misdirected(history: History, task: Task) -> Incident | None:
    """Explain a task whose results were rejected because its calls were about something else than the task."""
    known = history.known_texts(task)
    for one in task.tries:
        for attempt in one.attempts:
            verdict = attempt.verdict
            if verdict is None or verdict.status != "REJECTED" or any(call.failed for call in attempt.calls):
                continue
            reasons = " ".join(verdict.reasons)
            for call in attempt.calls:
                wrong = [(name, value) for name, value in ungrounded(call, known) if shares_word(reasons, str(value))]
                wrong += _in_place_of_named(call, task)
                if wrong or _is_blamed(call, reasons, known):
                    shown = wrong or ungrounded(call, known)
                    text = (
                        f"Agent {who(task)} called {call_text(call)} in {task_text(task)}, which did not ask for that: "
                        f"{_named(shown)}. The reviewer rejected the result: {said(reasons)}."
                    )
                    return task_incident("wrong_argument", history, task, text, [call], seq=call.seq)
    return None


def _in_place_of_named(call: Call, task: Task) -> list[tuple[str, object]]:
    """Return the arguments that the task does not name, though it names another value that is written like them.

    For example the number of another flight than the task's: it may well stand in the request.
    """
    named = _IDENTIFIER.findall(task.text)
    forms = {_form(one) for one in named if not any(mentions(str(value), one) for _, value in leaves(call.arguments))}
    return [
        (name, value)
        for name, value in leaves(call.arguments)
        if _form(str(value)) in forms and not mentions(task.text, value)
    ]


def _form(value: str) -> str:
    """Return how a value is written: `AA999` for `LH454`; numbers of any length are alike."""
    return _LETTER.sub("A", _DIGITS.sub("9", value))


def _is_blamed(call: Call, reasons: str, known: Sequence[str]) -> bool:
    """Whether a rejection names an argument by its name, and a value of it comes from nowhere."""
    return any(len(name) > 2 and mentions(reasons, name) for name, _ in ungrounded(call, known))


def _refused(history: History, call: Call, known: Sequence[str]) -> bool:
    if call.code == "invalid_arguments":
        return True
    if call.code not in ("tool_error", ""):
        return False
    named = any(mentions(call.text, value) for _, value in leaves(call.arguments))
    return (
        named
        or history.english.is_about_values(call.text)
        or _others_succeed(history, call)
        or bool(ungrounded(call, known))
    )


def _others_succeed(history: History, call: Call) -> bool:
    """Whether the same tool answered with other arguments in this run."""
    return any(
        other.name == call.name
        and other.status == "succeeded"
        and canonical(other.arguments) != canonical(call.arguments)
        for other in history.calls.values()
    )


def ungrounded(call: Call, known: Sequence[str]) -> list[tuple[str, object]]:
    """Return the arguments, by name, whose values could not be taken from any of these texts."""
    return [(name, value) for name, value in leaves(call.arguments) if not is_grounded(value, known)]


def _named(wrong: Sequence[tuple[str, object]]) -> str:
    return ", ".join(f"{name}={value_text(value)}" for name, value in wrong[:3]) or "its arguments"
