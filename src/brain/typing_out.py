"""Text for the user, grouped so that a stream of tokens doesn't become a stream of transactions."""

import asyncio
from types import TracebackType
from typing import Self

from brain.context import RunContext
from starling.core.events import Thinking

_GROUP_SECONDS = 0.05
_GROUP_CHARS = 512


class TypingOut:
    """Emits what it is given as `thinking` events, at most 50 ms or 512 characters behind."""

    def __init__(self, context: RunContext, message_id: str) -> None:
        self._context = context
        self._message_id = message_id
        self._restarts = 0
        self._held: list[str] = []
        self._timer: asyncio.TimerHandle | None = None

    def write(self, text: str, *, restart: bool = False) -> None:
        """Add text; `restart` begins a new message, which replaces what was typed before."""
        if restart:
            self._emit()
            self._restarts += 1
        self._held.append(text)
        if sum(map(len, self._held)) >= _GROUP_CHARS:
            self._emit()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_GROUP_SECONDS, self._emit)

    def _emit(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if text := "".join(self._held):
            self._held.clear()
            suffix = f".{self._restarts}" if self._restarts else ""
            self._context.emit(Thinking(content=text, message_id=self._message_id + suffix))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._emit()
