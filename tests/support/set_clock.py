"""A clock that a test sets."""

from dataclasses import dataclass
from datetime import UTC, datetime

from starling.core.clock import SystemClock


@dataclass
class SetClock(SystemClock):
    """Stands still until its seconds are set."""

    seconds: float = 0.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds
