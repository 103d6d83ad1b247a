"""The tasks of a run on a terminal: a tree with the status of each task and call, kept up to date."""

from dataclasses import dataclass, field
from time import monotonic
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from starling.app.cli.terminal.build_text import BUILD_EVENTS
from starling.app.cli.terminal.event_text import (
    Data,
    arguments_text,
    called_by,
    enclosing,
    log_text,
    one_line,
    place_of,
    planned_place,
    progress_text,
    result_text,
    seconds_text,
)
from starling.app.cli.terminal.output import printable
from starling.app.cli.terminal.run_display import QUIET_LEVELS, RunDisplay
from starling.core.principal import DEFAULT_TENANT
from starling.core.task_paths import without_numbers

_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAMES_A_SECOND: Final = 8
_TEXT_CHARS: Final = 200
_SHOWN: Final = frozenset(
    {"plan", "task_start", "tool_start", "tool_progress", "tool_result", "reflection", "task_result"}
)
_KEEPING: Final = BUILD_EVENTS | {"warning", "run_started", "gap", "tool_log"}  # printed above the tree
_MARKS: Final = {"done": ("✓", "green"), "failed": ("✗", "red"), "waiting": ("·", "dim")}


@dataclass(slots=True)
class _Line:
    """A task or a call. `state` is waiting, working, done or failed."""

    text: str
    state: str = "waiting"
    note: str = ""
    begun: float = 0.0
    ended: float = 0.0

    @property
    def unfinished(self) -> bool:
        return self.state in ("waiting", "working")

    def begin(self) -> None:
        self.state, self.begun, self.note = "working", monotonic(), ""

    def end(self, state: str, note: str = "") -> None:
        self.state, self.ended, self.note = state, monotonic(), note


@dataclass(slots=True)
class _TaskLine(_Line):
    calls: dict[str, _Line] = field(default_factory=dict[str, _Line])


class TaskTree(RunDisplay):
    """Prints the events of a run like RunDisplay, but its tasks and calls as a tree that changes in place.

    Use it as a context: the tree is drawn for the last time when the context ends.
    """

    def __init__(self, console: Console, *, live: bool = True, tenant: str = DEFAULT_TENANT) -> None:
        super().__init__(console, live=live, tenant=tenant)
        self._lines: dict[str, _TaskLine] = {}
        self._region: Live | None = None
        self._frozen = False
        self._thinking_since = 0.0  # the supervisor decides what to do; 0 where it doesn't

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.freeze()

    def freeze(self) -> None:
        """Leave the tree as it is now; the next event draws a new one below, without the tasks that ended."""
        if self._region is None:
            return
        self._thinking_since, self._frozen = 0.0, True
        self._region.stop()
        self._region, self._frozen = None, False
        self._lines = {name: line for name, line in self._lines.items() if line.unfinished}
        for line in self._lines.values():
            line.calls = {name: call for name, call in line.calls.items() if call.unfinished}

    def feed(self, seq: int, kind: str, data: Data) -> None:
        """Show one event."""
        if kind not in _SHOWN | _KEEPING and hasattr(self, f"_on_{kind}"):
            self.freeze()
        super().feed(seq, kind, data)
        if kind == "run_started":
            self._thinking_since = monotonic()
        if kind in _SHOWN or kind == "run_started":
            self._draw()

    def __rich__(self) -> Group:
        """Return the tree as it is now; called for each frame."""
        lines = [
            self._rendered(line, indent)
            for task, indent_of_task in self._in_order()
            for line, indent in (
                (task, indent_of_task),
                *((call, f"{indent_of_task}    ") for call in list(task.calls.values())),
            )
        ]
        if self._thinking_since:
            lines.append(self._rendered(_Line("Deciding what to do", "working", begun=self._thinking_since), ""))
        return Group(*lines)

    def _in_order(self) -> list[tuple[_TaskLine, str]]:
        """Return the lines of tasks with their indentation: those of a team's star below the team's own task.

        A case is below the task that tries a team on it, and above what the team does with it.
        """
        names = list(self._lines)
        rank = {name: number for number, name in enumerate(names)}

        def order(name: str) -> list[int]:
            return [rank.get(place, -1) for place in enclosing(name)]

        return [(self._lines[name], "    " * (len(enclosing(name)) - 1)) for name in sorted(names, key=order)]

    def _draw(self) -> None:
        if self._region is None and (self._lines or self._thinking_since):
            self._end_line()
            self._region = Live(self, console=self._console, refresh_per_second=_FRAMES_A_SECOND, transient=False)
            self._region.start()

    def _rendered(self, line: _Line, indent: str) -> Text:
        frame = "…" if self._frozen else _FRAMES[int(monotonic() * _FRAMES_A_SECOND) % len(_FRAMES)]
        mark, style = _MARKS.get(line.state, (frame, "cyan"))
        note = f": {line.note}" if line.note else ""
        text = Text(f"{indent}{mark} {printable(line.text)}{printable(note)}", style, no_wrap=True, overflow="ellipsis")
        if self._live and line.begun:
            taken = f" {seconds_text((line.ended or monotonic()) - line.begun)}"
            text.truncate(max(10, self._console.width - len(taken) - 1), overflow="ellipsis")
            text.append(taken, "dim")
        return text

    def _on_trial(self, trial: str, case: str, kind: str, data: Data) -> None:
        if trial not in self._lines:
            self._lines[trial] = _TaskLine(f"Case {case}")
            self._lines[trial].begin()
        self._show(kind, data)

    def _on_build(self, kind: str, data: Data) -> None:
        if kind == "proof":  # said above the tree, with what was not met
            trial = without_numbers(data["trial_path"])
            self._lines = {name: line for name, line in self._lines.items() if trial not in enclosing(name)}
        super()._on_build(kind, data)

    def _on_plan(self, data: Data) -> None:
        self._thinking_since = 0.0
        for task in data["tasks"]:
            place = planned_place(data, task)
            self._remember(task, place)
            text = f"{task['agent']}: {one_line(task['task'], _TEXT_CHARS)}"
            if task["status"] == "pending" or place in self._lines:
                self._lines.setdefault(place, _TaskLine(text)).text = text

    def _on_task_start(self, data: Data) -> None:
        line = self._task_line(data)
        line.begin()
        if data["attempt"] > 1:
            line.note, line.calls = f"attempt {data['attempt']}", {}

    def _on_tool_start(self, data: Data) -> None:
        self._note_tool(data)
        call = _Line(f"{data['name']}({arguments_text(data['args'])})")
        call.begin()
        self._task_line(data).calls[data["call_id"]] = call

    def _on_tool_progress(self, data: Data) -> None:
        self._note(data, progress_text(data))

    def _on_tool_log(self, data: Data) -> None:
        """Show what a server logs at its call until something else comes; warnings and errors stay, above the tree."""
        if data["level"] in QUIET_LEVELS:
            self._note(data, log_text(data))
        else:
            super()._on_tool_log(data)

    def _note(self, data: Data, note: str) -> None:
        call = self._call_of(data)
        if call is not None and call.unfinished:
            call.note = one_line(note, _TEXT_CHARS)

    def _call_of(self, data: Data) -> _Line | None:
        task = self._lines.get(called_by(data))
        return task.calls.get(data["call_id"]) if task else None

    def _on_tool_result(self, data: Data) -> None:
        call = self._call_of(data)
        if call is not None:
            failed = data["status"] != "succeeded"
            call.end("failed" if failed else "done", result_text(data, _TEXT_CHARS))

    def _on_reflection(self, data: Data) -> None:
        if data["status"] == "REJECTED" and (line := self._lines.get(place_of(data))):
            line.note = f"rejected: {one_line('; '.join(data['reasons']), _TEXT_CHARS)}"

    def _on_task_result(self, data: Data) -> None:
        self._note_result(data)
        failed = data["status"] == "failed"
        self._task_line(data).end("failed" if failed else "done", data["summary"] if failed else "")

    def _task_line(self, data: Data) -> _TaskLine:
        place = place_of(data)
        known = self._tasks.get(place)
        agent = data.get("agent") or (known.agent if known else place)
        text = f"{agent}: {one_line(known.text, _TEXT_CHARS)}" if known and known.text else agent
        return self._lines.setdefault(place, _TaskLine(text))
