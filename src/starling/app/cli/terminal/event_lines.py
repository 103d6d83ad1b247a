"""The events of a run as text for pipes and files: what an event says is in the event itself."""

from collections.abc import Callable, Mapping
from typing import Final

from starling.app.cli.terminal.build_text import BUILD_EVENTS, build_lines
from starling.app.cli.terminal.formats import (
    Data,
    arguments_text,
    case_of,
    log_text,
    result_lines,
    result_text,
)
from starling.app.cli.terminal.interrupt_text import INTERRUPT_EVENTS, interrupt_lines
from starling.core.run_document.builder import progress_text
from starling.core.task_paths import without_numbers
from starling.core.text import one_line

_TEXT_CHARS: Final = 110
_REASONS_CHARS: Final = 200
_TROUBLE_CHARS: Final = 800  # a refused answer is quoted with 300 of them
_OF_TRIALS: Final = frozenset({"tool_result", "task_result", "warning", "error"})
_MARKS: Final = {"APPROVED": "✓", "FIXED": "✎", "REJECTED": "✗"}


def event_line(event: str, data: Data, run: str, *, commands: bool = True) -> str | None:
    """Return what an event says, None where that is nothing. `run` is how commands name the run.

    Each is one line, but for designs, questions and the end of the run. With `commands` questions have the command
    that answers them.
    """
    if event in BUILD_EVENTS:
        return "\n".join(text for text, _ in build_lines(data))
    if event in INTERRUPT_EVENTS:
        return "\n".join(interrupt_lines(event, data, run, commands=commands))
    if event not in _LINES or (event not in _OF_TRIALS and case_of(data.get("path") or "")):
        return None
    return _LINES[event](data) or None


def _place(data: Data) -> str:
    """Return where a task is, `t1` or `t3/t1` in a team, in whichever try; older runs tell its id only."""
    return without_numbers(data.get("path") or data["task_id"])


def _plan(data: Data) -> str:
    team = f" of {without_numbers(data['path'])}" if data.get("path") else ""
    version = f", version {data['version']}" if data["version"] > 1 else ""
    tasks: list[str] = []
    for task in data["tasks"]:
        after = f" (after {', '.join(task['depends_on'])})" if task["depends_on"] else ""
        state = f" [{task['status']}]" if task["status"] != "pending" else ""
        tasks.append(f"{task['id']} {task['agent'] or '(open)'}: {one_line(task['task'], _TEXT_CHARS)}{after}{state}")
    changes = [f"{one['kind']} {one['task_id']} ({one['reason']})" for one in data.get("changes") or ()]
    changed = f". Changes: {'; '.join(changes)}" if changes else ""
    return f"Plan{team}{version}: {'; '.join(tasks)}{changed}" if tasks or changes else ""


def _tool_result(data: Data) -> str:
    place = without_numbers(data["call_id"].rsplit(".", 2)[0])
    verb = "answered" if data["status"] == "succeeded" else "failed"
    text = one_line(result_text(data["result"], data.get("simulated")), _TEXT_CHARS)
    return f"{place}   {data['name']} {verb}: {text}"


def _reflection(data: Data) -> str:
    reasons = "" if data["status"] == "APPROVED" else f": {one_line('; '.join(data['reasons']), _REASONS_CHARS)}"
    return f"{_place(data)}   {data['status']} {_MARKS[data['status']]}{reasons}"


def _trouble(data: Data) -> str:
    place = "/".join(filter(None, (without_numbers(data.get("path") or ""), data.get("task_id"))))
    return f"{data['type'].capitalize()}{place and f' in {place}'}: {one_line(data['message'], _TROUBLE_CHARS)}"


_LINES: Final[Mapping[str, Callable[[Data], str]]] = {
    "run_started": lambda data: f"Run {data['run_id']} on thread {data['thread_id']}, epoch {data['epoch']}",
    "plan": _plan,
    "task_start": lambda data: (
        f"{_place(data)} → {data['agent']} works{f', attempt {data["attempt"]}' if data['attempt'] > 1 else ''}"
    ),
    "tool_start": lambda data: f"{_place(data)}   calls {data['name']}({arguments_text(data['args'])})",
    "tool_progress": lambda data: f"{_place(data)}   {data['name']}: {one_line(progress_text(data), _TEXT_CHARS)}",
    "tool_log": lambda data: f"{_place(data)}   {data['name']} logs {one_line(log_text(data), _TEXT_CHARS)}",
    "tool_result": _tool_result,
    "reflection": _reflection,
    "task_result": lambda data: (
        f"{_place(data)} {data['agent']} failed: {one_line(data['summary'], _REASONS_CHARS)}"
        if data["status"] == "failed"
        else ""
    ),
    "warning": _trouble,
    "error": _trouble,
    "gap": lambda data: f"Events {data['from']} to {data['to']} are no longer kept.",
    "done": lambda data: "\n".join(text for text, _ in result_lines(data)),
}
