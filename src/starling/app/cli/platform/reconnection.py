"""Requests that are repeated while the platform is started again, at its new address if that has changed."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import typer

from starling.app.cli.platform.api_requests import Api, ApiRequests, ApiUnavailableError
from starling.core.errors import DatabaseUnavailableError

TEMPORARY: Final = (ApiUnavailableError, DatabaseUnavailableError)  # the latter: every 503 that a retry can help

type TemporaryError = ApiUnavailableError | DatabaseUnavailableError
type Relocate = Callable[[], str]
"""Returns the address of the API now; empty if it is the same as before, or unknown."""


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


def same_address() -> str:
    """Return no other address: that of the API is fixed."""
    return ""


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


@dataclass(slots=True)
class ReconnectingApi(Api):
    """The API of a platform, also while and after it is started again.

    Each request must be one that may be repeated: an answer may be lost on the way back. Raises what `api` raises once
    the API has not answered for the time of `times`.
    """

    api: ApiRequests
    relocate: Relocate
    reached: bool = False  # whether the API has answered
    times: RetryTimes = DEFAULT_TIMES

    @property
    def place(self) -> str:
        return self.api.url

    def send(self, method: str, path: str, body: object = None, *, seconds: float | None = None) -> tuple[str, bytes]:
        """Return the media type and the content of the answer to a request that was not refused."""
        outage = Outage(self.times)
        while True:
            try:
                answer = self._located().send(method, path, body, seconds=seconds)
            except TEMPORARY as error:
                self.reached = self.reached or isinstance(error, DatabaseUnavailableError)
                outage.wait(error, reached=self.reached)
            else:
                self.reached = True
                return answer

    def _located(self) -> ApiRequests:
        if url := self.relocate():
            self.api = ApiRequests(url, self.api.key)
        return self.api
