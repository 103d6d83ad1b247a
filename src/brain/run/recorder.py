"""What a run adds to its events and steps, and the buffer between a model's tokens and `thinking` events."""

import asyncio
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from brain.run_sink import RunSink
from starling.core.events.run_events import Plan, Route, Thinking, Warn
from starling.core.events.stream import AnyEvent
from starling.core.runs import Step
from starling.core.secrets.look_alikes import StreamedText


@dataclass(frozen=True, slots=True)
class RunRecorder:
    """Adds to the stream of events and to the record of steps of one run.

    `path` is that of the team whose work is recorded, empty for the main star.
    """

    sink: RunSink
    path: str = ""
    _warned: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def inside(self, path: str) -> Self:
        """Return what records the work of a team: its plans have its path, and its text isn't for the user."""
        return replace(self, path=path)

    def emit(self, event: AnyEvent) -> None:
        """Add an event to the stream."""
        if self.path and isinstance(event, Thinking):
            return
        if self.path and isinstance(event, (Plan, Route, Warn)):
            event = event.model_copy(update={"path": self.path})
        self.sink.emit(event)

    def step(self, step: Step) -> None:
        """Add a step to the record."""
        self.sink.step(step)

    def warn(self, code: str, message: str, task_id: str | None = None) -> None:
        """Report, in the stream and in the record, a problem that the run survives."""
        self.emit(Warn(code=code, message=message, task_id=task_id))
        self.step(
            Step(
                type="warning",
                description=message,
                metadata={"code": code, "task_id": task_id, **({"path": self.path} if self.path else {})},
            )
        )

    def warn_once(self, code: str, message: str, about: str = "") -> None:
        """Report a problem of the whole run, or of what it is `about`, when it is first met."""
        if (code, about) not in self._warned:
            self._warned.add((code, about))
            self.warn(code, message)

    async def flush(self) -> None:
        """Make what was added so far durable. Raises LeaseLostError, DatabaseUnavailableError."""
        await self.sink.flush()


_GROUP_SECONDS = 0.05
_GROUP_BYTES = 512  # of UTF-8


class StreamBuffer:
    """Emits text as `thinking` events of at most 512 bytes, at most 50 ms late: a token alone makes no transaction.

    What may be the beginning of a key is held back until it is known whether it is one.
    """

    def __init__(self, recorder: RunRecorder, message_id: str) -> None:
        self._recorder = recorder
        self._message_id = message_id
        self._restarts = 0
        self._held = bytearray()
        self._masked = StreamedText()
        self._timer: asyncio.TimerHandle | None = None

    def write(self, text: str, *, restart: bool = False) -> None:
        """Add text; `restart` begins a new message, which replaces the one before, and drops what was not emitted."""
        if restart:
            self._held.clear()
            self._masked = StreamedText()
            self._restarts += 1
        self._hold(self._masked.feed(text))
        if self._held and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_GROUP_SECONDS, self._emit_all)

    def _hold(self, text: str) -> None:
        self._held += text.encode("utf-8", "surrogatepass")
        while (count := _GROUP_BYTES) <= len(self._held):
            while count < len(self._held) and self._held[count] & 0xC0 == 0x80:  # a continuation byte
                count -= 1
            self._emit(count)

    def _emit_all(self) -> None:
        self._emit(len(self._held))

    def _emit(self, count: int) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if not count:
            return
        content = self._held[:count].decode("utf-8", "surrogatepass")
        del self._held[:count]
        suffix = f".{self._restarts}" if self._restarts else ""
        self._recorder.emit(Thinking(content=content, message_id=self._message_id + suffix))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hold(self._masked.end())
        self._emit_all()


def emit_text(recorder: RunRecorder, message_id: str, text: str) -> None:
    """Emit a whole text, in place of what was streamed before under the same id."""
    with StreamBuffer(recorder, message_id) as buffer:
        buffer.write(text)
