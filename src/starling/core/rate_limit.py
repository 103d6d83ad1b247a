"""Rate limits: a token bucket."""


class TokenBucket:
    """Allows `burst` actions at once, and then `per_second`. `now` is the time of a monotonic clock, in seconds."""

    __slots__ = ("_burst", "_counted_at", "_per_second", "_tokens")

    def __init__(self, burst: float, per_second: float, now: float) -> None:
        self._burst = self._tokens = burst
        self._per_second = per_second
        self._counted_at = now

    def wait(self, now: float) -> float:
        """Return after how many seconds the next action is allowed: 0 if it is now."""
        self._tokens = min(self._burst, self._tokens + (now - self._counted_at) * self._per_second)
        self._counted_at = now
        return max(0.0, (1 - self._tokens) / self._per_second)

    def take(self, now: float) -> bool:
        """Count one action. Return False, and count nothing, if it is not allowed now."""
        if self.wait(now) > 0:
            return False
        self._tokens -= 1
        return True
