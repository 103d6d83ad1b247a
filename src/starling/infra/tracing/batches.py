"""A thread that sends what was collected in the second before."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

_GATHER_SECONDS: Final = 1.0
_log = logging.getLogger(__name__)


class BatchThread[T]:
    """Passes items in order to `send`, in batches of at most `batch`. It sleeps while there is nothing to send.

    At most `limit` items wait; adding one never blocks, and wakes the thread only if it is the first of its second.
    """

    def __init__(self, name: str, send: Callable[[list[T]], None], *, limit: int, batch: int) -> None:
        self._send = send
        self._limit, self._batch = limit, batch
        self._items: deque[T] = deque()
        self._filled, self._closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True, name=name)
        self._thread.start()

    def add(self, item: T) -> bool:
        """Add an item to the next batch. Return False if too many wait: the item is dropped."""
        if len(self._items) >= self._limit:
            return False
        self._items.append(item)
        if not self._filled.is_set():
            self._filled.set()
        return True

    def close(self) -> None:
        """Send what waits, then stop."""
        self._closing.set()
        self._filled.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._closing.is_set():
            self._filled.wait()
            self._closing.wait(_GATHER_SECONDS)
            self._filled.clear()  # before the batches are taken: what is added meanwhile sets it again
            self._send_all()
        self._send_all()  # what came while the last batch was sent

    def _send_all(self) -> None:
        while self._items:
            batch = [self._items.popleft() for _ in range(min(self._batch, len(self._items)))]
            try:
                self._send(batch)
            except Exception:  # noqa: BLE001 - the thread's edge: what follows is sent
                _log.exception("a batch of %d could not be sent", len(batch))
