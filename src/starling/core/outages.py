"""What the log says of an outage that several components notice."""

import logging
from collections.abc import Callable
from math import inf
from threading import Lock
from time import monotonic
from typing import Final

_LATE_SECONDS: Final = 10.0
_REPEAT_SECONDS: Final = 60.0


class Outage:
    """Logs one cause: a line when it begins, one a minute with the number of failures while it lasts, one at its end.

    It lasts until each part that failed has recovered. Failures right after its end are its last ones: they are logged
    where they go on. Threads may share it.
    """

    def __init__(self, log: logging.Logger, failing: str, again: str, clock: Callable[[], float] = monotonic) -> None:
        self._log, self._failing, self._again = log, failing, again
        self._clock = clock
        self._lock = Lock()
        self._parts: set[str] = set()
        self._failures = 0
        self._begun = self._logged = 0.0
        self._ended = -inf
        self.failed_at = -inf  # the last failure of any part

    @property
    def lasts(self) -> bool:
        return bool(self._parts)

    def failed(self, error: object, part: str = "") -> None:
        """Count a failure of a part; `error` is the cause."""
        with self._lock:
            now = self.failed_at = self._clock()
            if not self._parts:
                self._begun, self._failures, self._logged = now, 0, -inf
            self._parts.add(part)
            self._failures += 1
            if self._logged < self._begun and now - self._ended >= _LATE_SECONDS:
                self._logged = now
                self._log.warning("%s: %s", self._failing, error)
            elif self._logged >= self._begun and now - self._logged >= _REPEAT_SECONDS:
                self._logged = now
                told = self._failing, now - self._begun, self._failures, error
                self._log.warning("%s, for %.0f s; failures: %d; the last one: %s", *told)

    def recovered(self, part: str = "") -> None:
        """Note that a part works."""
        if part not in self._parts:
            return
        with self._lock:
            self._parts.discard(part)
            if not self._parts and self._logged >= self._begun:
                self._ended = self._clock()
                seconds = self._ended - self._begun
                self._log.info("%s, after %.0f s; failures: %d", self._again, seconds, self._failures)
