"""Back-off between starts of a server that fails each time."""

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final

from starling.core.errors import ServerUnavailableError

_FREE_FAILURES: Final = 4  # two calls, each tried twice
_LONGEST_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class _Failures:
    count: int
    last: ServerUnavailableError
    until: float


class RestartBackoff:
    """Refuses sessions of a configuration for 1, 2, 4 … 30 s after more than a few failed starts in a row."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._failures: dict[tuple[str, str], _Failures] = {}

    def check(self, key: tuple[str, str]) -> None:
        """Raise ServerUnavailableError, with the last reason, while the server must not be started."""
        found = self._failures.get(key)
        if found is not None and (left := found.until - self._now()) > 0:
            reason = f"{found.last.reason} It failed {found.count} times in a row and is tried again in {left:.0f} s."
            raise ServerUnavailableError(found.last.server, reason, found.last.remedy)

    def failed(self, key: tuple[str, str], error: ServerUnavailableError) -> None:
        """Note a start that failed."""
        earlier = self._failures.get(key)
        count = earlier.count + 1 if earlier else 1
        seconds = min(2.0 ** (count - _FREE_FAILURES), _LONGEST_SECONDS) if count >= _FREE_FAILURES else 0.0
        self._failures[key] = _Failures(count, error, self._now() + seconds)

    def opened(self, key: tuple[str, str]) -> None:
        """Note a session that was open."""
        self._failures.pop(key, None)
