"""Buffer between a model's tokens and the run's `thinking` events."""

import asyncio
from types import TracebackType
from typing import Self

from brain.run.recorder import RunRecorder
from starling.core.events.run_events import Thinking
from starling.core.secrets.look_alikes import StreamedText

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
        self._held += self._masked.feed(text).encode("utf-8", "surrogatepass")
        while len(self._held) >= _GROUP_BYTES:
            self._emit(_whole_characters(self._held, _GROUP_BYTES))
        if self._held and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_GROUP_SECONDS, self._emit_all)

    def _emit_all(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._held:
            self._emit(len(self._held))

    def _emit(self, count: int) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        content = self._held[:count].decode("utf-8", "surrogatepass")
        del self._held[:count]
        suffix = f".{self._restarts}" if self._restarts else ""
        self._recorder.emit(Thinking(content=content, message_id=self._message_id + suffix))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held += self._masked.end().encode("utf-8", "surrogatepass")
        while len(self._held) >= _GROUP_BYTES:
            self._emit(_whole_characters(self._held, _GROUP_BYTES))
        self._emit_all()


def _whole_characters(text: bytearray, most: int) -> int:
    """Return how many bytes, at most `most`, end with a whole character."""
    while most < len(text) and text[most] & 0xC0 == 0x80:  # a continuation byte
        most -= 1
    return most
