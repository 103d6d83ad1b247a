"""A run that is followed: its events as lines, or its document as a tree that changes in place."""

from threading import Lock
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from starling.app.cli.terminal.event_lines import event_line
from starling.app.cli.terminal.formats import Data, result_lines
from starling.app.cli.terminal.interrupt_text import INTERRUPT_EVENTS, behind_line, run_reference
from starling.app.cli.terminal.output import printable, write
from starling.app.cli.terminal.run_tree import RunTree, TreeForm, run_times
from starling.core.clock import SystemClock
from starling.core.principal import DEFAULT_TENANT
from starling.core.run_document.builder import RunDocumentBuilder
from starling.core.run_document.document import RunDocument
from starling.core.run_document.rows import EventRow, RunRow
from starling.core.run_status import RunStatus

_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAMES_A_SECOND: Final = 8
_CLOCK: Final = SystemClock()
_PRINTED: Final = INTERRUPT_EVENTS | {"run_started", "gap"}


class RunDisplay:
    """Prints each event of a run as it comes. Use it as a context."""

    def __init__(self, console: Console, tenant: str = DEFAULT_TENANT) -> None:
        self.run_id = ""
        self.commands = True
        """Whether the commands that answer what the run asks are shown: not where prompts ask."""
        self._console = console
        self._tenant = tenant

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.freeze()

    def freeze(self) -> None:
        """Leave what changes in place as it is now."""

    def behind(self, run_id: str, status: str) -> None:
        """Show the run that has to end before this one begins."""
        write(self._console, f"{behind_line(run_id, status)}\n", "yellow")

    def feed(self, event: EventRow) -> None:
        """Show one event. Unknown kinds, of a newer version, are ignored."""
        self.run_id = self.run_id or event.data.get("run_id", "")
        self._print(event.type, event.data)

    def _print(self, kind: str, data: Data) -> None:
        run = run_reference(self.run_id, self._tenant)
        line = event_line(kind, data, run, commands=self.commands)
        if line is not None:
            write(self._console, f"{line}\n")


class TreeDisplay(RunDisplay):
    """Shows what a run did so far as a tree that changes in place, and below it the answer while it is written.

    `times` says that events arrive as they happen: only then are durations worth showing.
    """

    def __init__(self, console: Console, tenant: str = DEFAULT_TENANT, *, times: bool = True) -> None:
        super().__init__(console, tenant)
        self._builder, self._taking = RunDocumentBuilder(), Lock()  # frames are drawn by a thread
        self._begun = False
        self._times = times
        self._region: Live | None = None
        self._frozen = False
        self._seq = self._after = self._built = 0
        self._message, self._answer = "", ""

    def freeze(self) -> None:
        """Leave the tree as it is now; the next event draws a new one below, without what ended."""
        if self._region is None:
            return
        self._frozen = True
        self._region.transient = not self._tree()  # no empty line
        self._region.stop()
        self._region, self._frozen = None, False
        self._after, self._built = self._seq, len(self._document().builds)

    def feed(self, event: EventRow) -> None:
        """Show one event."""
        self._seq, kind, data = event.seq, event.type, event.data
        self.run_id = self.run_id or data.get("run_id", "")
        with self._taking:
            now = _CLOCK.now()
            if not self._begun and kind != "run_started":  # its first events are no longer kept
                self._builder.take(RunRow(self.run_id, "", "", "", 0, RunStatus.RUNNING, "", {}, now), now)
            self._begun = True
            self._builder.take(event, now)
        if kind == "thinking":
            self._answer = (self._answer if data["message_id"] == self._message else "") + data["content"]
            self._message = data["message_id"]
        if kind in INTERRUPT_EVENTS or kind == "done":
            self.freeze()
        if kind in _PRINTED:
            self._print(kind, data)
        if kind == "done":
            for text, style in result_lines(data, run_times(self._document()) if self._times else ""):
                write(self._console, f"{text}\n", style)
        elif kind not in INTERRUPT_EVENTS and self._region is None:
            self._region = Live(self, console=self._console, refresh_per_second=_FRAMES_A_SECOND)
            self._region.start()

    def __rich__(self) -> Group:
        """Return the tree as it is now; called for each frame."""
        lines = self._tree()
        if self._frozen:
            return Group(*lines)
        if self._answer:
            answer = Text(printable(self._answer)).wrap(self._console, self._console.width)
            lines = [*lines, Text("Answer", "bold"), *answer]
        elif not lines:
            lines = [Text(f"{self._frame()} Deciding what to do", "cyan")]
        return Group(*lines[-max(1, self._console.height - 2) :])  # what is above can't be changed in place

    def _tree(self) -> list[Text]:
        form = TreeForm(
            width=self._console.width,
            now=_CLOCK.now() if self._times else None,
            live=True,
            frame="…" if self._frozen else self._frame(),
            after=self._after,
            built=self._built,
        )
        lines = RunTree(self._document(), form).lines()
        return [Text(printable(text), style or "", no_wrap=True, overflow="ellipsis") for text, style in lines]

    def _frame(self) -> str:
        return _FRAMES[int(_CLOCK.now().timestamp() * _FRAMES_A_SECOND) % len(_FRAMES)]

    def _document(self) -> RunDocument:
        with self._taking:
            return self._builder.document()
