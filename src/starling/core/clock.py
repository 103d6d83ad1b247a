"""The one clock. Leases use the database's time instead."""

import time
from datetime import UTC, datetime
from typing import Final, Protocol

_THROUGH_SLEEP: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def lease_time() -> float:
    """Return seconds that never go back and, where the system can tell (Linux), pass while the machine sleeps.

    The database's clock, by which leases end, doesn't stand still with this machine's.
    """
    return time.clock_gettime(_THROUGH_SLEEP)


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> datetime:
        """Return the current moment, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back; only differences mean something."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)  # noqa: TID251 - this is the clock

    def monotonic(self) -> float:
        return time.monotonic()


class Deadline:
    """One moment by which something has to be done, passed down as a remaining budget."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._end = clock.monotonic() + seconds

    def remaining(self) -> float:
        """Return the seconds left, never below zero."""
        return max(0.0, self._end - self._clock.monotonic())

    def cap(self, seconds: float) -> float:
        """Return `seconds`, or what is left where that is less."""
        return min(seconds, self.remaining())

    @property
    def passed(self) -> bool:
        return self.remaining() == 0.0
