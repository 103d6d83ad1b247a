"""Rate limit: a token bucket for each key, in each API process."""

from starling.core.clock import Clock
from starling.core.errors import RateLimitedError


class RateLimit:
    """Allows `per_minute` requests at once for each key, and then as many a minute."""

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}  # key id -> tokens, and when they were counted

    def take(self, key_id: str) -> None:
        """Count one request. Raises RateLimitedError, and counts nothing, where there have been too many."""
        now = self._clock.monotonic()
        left, counted = self._left.get(key_id, (float(self._per_minute), now))
        left = min(float(self._per_minute), left + (now - counted) * self._per_minute / 60)
        if left < 1:
            raise RateLimitedError(self._per_minute, (1 - left) * 60 / self._per_minute)
        self._left[key_id] = left - 1, now
