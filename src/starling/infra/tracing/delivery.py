"""Delivery to services that take traces or scores: a thread that sends batches, and repeated requests."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import httpx
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential
from tenacity.wait import wait_base

PAUSE: Final = wait_exponential(multiplier=0.5, max=5)
_ATTEMPTS: Final = 3
_TOO_MANY_REQUESTS, _SERVER_ERROR = 429, 500


def attempts(wait: wait_base = PAUSE) -> Retrying:
    """Return what calls a function up to three times while its errors are temporary, and raises the last one."""
    return Retrying(
        retry=retry_if_exception(_is_temporary), stop=stop_after_attempt(_ATTEMPTS), wait=wait, reraise=True
    )


def _is_temporary(error: BaseException) -> bool:
    status: Any = getattr(error, "status_code", None)
    if status is None:
        return isinstance(error, httpx.TransportError)
    return status == _TOO_MANY_REQUESTS or status >= _SERVER_ERROR


_GATHER_SECONDS: Final = 2.0
_log = logging.getLogger(__name__)


class BatchThread[T]:
    """Passes items in order to `send`, in batches of at most `batch`. It sleeps while there is nothing to send.

    At most `limit` items wait. Adding one never blocks, and wakes the thread only if it is the first of two seconds.
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
            self._filled.clear()  # before they are counted: what is added from now on sets it again
            self._send_first(len(self._items))
        self._send_first(len(self._items))  # what came while the last batch was sent

    def _send_first(self, count: int) -> None:
        """Send so many of the items that wait. Later ones wait for others, so that they aren't sent one by one."""
        for begin in range(0, count, self._batch):
            batch = [self._items.popleft() for _ in range(min(self._batch, count - begin))]
            try:
                self._send(batch)
            except Exception:  # noqa: BLE001 - the thread's edge: what follows is sent
                _log.exception("a batch of %d could not be sent", len(batch))
