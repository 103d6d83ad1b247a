"""How long requests are repeated while the platform is started again."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import typer

from starling.app.cli.platform.api_errors import TemporaryError


@dataclass(frozen=True, slots=True)
class RetryTimes:
    """Times in seconds: how long to repeat requests to an API that answered before and to one that never did.

    `pause` is the time between two attempts; after `notice` the user is told.
    """

    answered_before: float = 60.0
    never_answered: float = 2.0
    pause: float = 0.5
    notice: float = 2.0


DEFAULT_TIMES: Final = RetryTimes()
ONCE: Final = RetryTimes(answered_before=0, never_answered=0)


def _print_notice(text: str) -> None:
    typer.echo(text, err=True)


@dataclass(slots=True)
class Outage:
    """Measures how long the API has not answered, over repeated attempts."""

    times: RetryTimes = DEFAULT_TIMES
    notify: Callable[[str], None] = _print_notice
    _since: float | None = field(default=None, init=False)
    _notified: bool = field(default=False, init=False)

    def end(self) -> None:
        """The API has answered: the next outage is measured anew."""
        self._since, self._notified = None, False

    def wait(self, error: TemporaryError, *, reached: bool) -> None:
        """Wait before the next attempt; `reached` says whether the API answered before. Raises `error` in the end."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        passed = now - self._since
        limit = self.times.answered_before if reached else self.times.never_answered
        if passed >= limit:
            raise error
        if reached and passed >= self.times.notice and not self._notified:
            self._notified = True
            self.notify(f"{error.message} Trying again for up to {limit - passed:.0f} s.")
        time.sleep(self.times.pause)
