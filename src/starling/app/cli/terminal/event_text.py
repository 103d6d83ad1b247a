"""Pieces of text that displays of events share: where something happened, calls, durations, counts."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from starling.core.task_paths import without_numbers

_ARGUMENTS_CHARS: Final = 90
_OF_TASKS: Final = frozenset({"task_start", "tool_start", "tool_progress", "tool_log", "reflection", "task_result"})
_INSIDE: Final = re.compile(r"[/.]")
_TRIAL: Final = re.compile(r"[^.]*\.(?=[a-z])(?:case-)?(?P<name>[^/]+)")  # the rest of a place is inside it

type Data = Mapping[str, Any]


def place_of(data: Data) -> str:
    """Return where a task is, `t1` or `t3/t1` in a team, in whichever try; older runs tell its id only."""
    return without_numbers(data.get("path") or data["task_id"])


def called_by(result: Data) -> str:
    """Return where the task is that made a call, by the call's id."""
    return without_numbers(result["call_id"].rsplit(".", 2)[0])


def result_text(result: Data, limit: int) -> str:
    """Return the result of a call in one line; of one that a trial didn't make, after what gave it: `[fixture]`."""
    text = result["result"]
    if source := result.get("simulated"):
        _, _, given = text.partition("\n")
        text = f"[{source}] {given}"
    return one_line(text, limit)


def progress_text(report: Data) -> str:
    """Return what a server said of the progress of a call: `2 of 5: reading the index`."""
    of = "" if report["total"] is None else f" of {report['total']:g}"
    return ": ".join(filter(None, (f"{report['progress']:g}{of}", report["message"])))


def log_text(report: Data) -> str:
    """Return what a server wrote to its log during a call: `warning, db: slow today`."""
    source = ", ".join(filter(None, (report["level"], report["logger"])))
    return f"{source}: {report['message']}"


def planned_place(plan: Data, task: Data) -> str:
    """Return where a task of a plan is."""
    return without_numbers("/".join(filter(None, (plan.get("path"), task["id"]))))


def event_place(kind: str, data: Data) -> str:
    """Return where an event happened, in whichever try; empty outside of tasks and plans."""
    if kind == "tool_result":
        return called_by(data)
    if kind == "plan":
        return without_numbers(data.get("path") or "")
    return place_of(data) if kind in _OF_TASKS else ""


def counted(number: int, what: str) -> str:
    """Return a number of things: `1 call`, `2 calls`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def arguments_text(arguments: Mapping[str, Any]) -> str:
    """Return the arguments of a call in one line."""
    shown = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items())
    return one_line(shown, _ARGUMENTS_CHARS)


def one_line(text: str, limit: int) -> str:
    """Return text on one line of at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def seconds_text(seconds: float) -> str:
    """Return a duration: `< 1 ms`, `40 ms`, `1.2 s`."""
    if seconds < 0.0005:
        return "< 1 ms"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def enclosing(place: str) -> Sequence[str]:
    """Return the places that a place is inside of, outermost first, and the place itself."""
    return [*(place[: found.start()] for found in _INSIDE.finditer(place)), place]


def trial_of(place: str) -> tuple[str, str] | None:
    """Return the place of the trial that a place is in or is, and the name of its case; None outside of trials."""
    found = _TRIAL.match(place)
    return (found[0], found["name"]) if found else None
