"""Errors of calls to the HTTP API, and how long requests are repeated while the platform is started again."""

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from starling.core.errors import (
    ConflictError,
    DatabaseUnavailableError,
    DatabaseUnsuitableError,
    ForbiddenError,
    InvalidRequestError,
    StarlingError,
    UnauthorizedError,
)

_ERRNO = re.compile(r"^\[Errno -?\d+\] ")
_BODY = "body."  # the beginning of the places of faults in what was sent
_SET_KEY = "Set STARLING_API_KEY to a key that is active there; `starling key create` makes one."
_START = "Start it with `starling up`, or give its address with --url or STARLING_URL."

_TRUST = "Name its certificate, or that of its authority, in SSL_CERT_FILE."


class MissingError(InvalidRequestError):
    """What the address names does not exist for this key."""


_KINDS: Final = {404: MissingError, 403: ForbiddenError, 409: ConflictError, 503: DatabaseUnavailableError}  # by status


class ApiUnavailableError(StarlingError):
    """The API does not answer, or neither this machine nor the settings have one to ask."""

    code = "api_unavailable"


def no_answer(url: str, error: Exception) -> ApiUnavailableError:
    """Return the error for a request to an address that got no answer."""
    reason = _ERRNO.sub("", str(error)).rstrip(".") or type(error).__name__
    remedy = _TRUST if "CERTIFICATE_VERIFY_FAILED" in reason else _START
    return ApiUnavailableError(f"The API at {url} does not answer: {reason}.", remedy)


TEMPORARY: Final = (ApiUnavailableError, DatabaseUnavailableError)  # the latter: every 503 that a retry can help


type TemporaryError = ApiUnavailableError | DatabaseUnavailableError


def refusal(url: str, status: int, content: bytes) -> StarlingError:
    """Return the error that an answer with an error status stands for."""
    try:
        problem = json.loads(content)
        detail, remedy, code = str(problem["detail"]), str(problem.get("remedy", "")), problem.get("code")
        if faults := [one for one in problem.get("errors", ()) if str(one.get("where")).startswith(_BODY)]:
            detail = "; ".join(f"{one['where'].removeprefix(_BODY)}: {one['what']}" for one in faults)
            remedy = "`--help` after a command describes its options, `/docs` of the API its fields."
    except (ValueError, KeyError, TypeError, AttributeError):
        detail, remedy, code = f"{url} answered {status}.", "Check that the address is that of Starling's API.", None
    if status == 401 and code == UnauthorizedError.code:
        return InvalidRequestError(detail, _SET_KEY)
    if status == 503 and code == DatabaseUnsuitableError.code:
        return DatabaseUnsuitableError(detail, remedy)
    other = InvalidRequestError if status < 500 else StarlingError
    return _KINDS.get(status, other)(detail, remedy)


@dataclass(frozen=True, slots=True)
class RetryTimes:
    """Times in seconds: how long to repeat requests to an API that answered before and to one that never did.

    `pause` is the time between two attempts; after `notice` what happens is given to `tell`.
    """

    answered_before: float = 60.0
    never_answered: float = 2.0
    pause: float = 0.5
    notice: float = 2.0
    tell: Callable[[str], None] | None = None


ONCE: Final = RetryTimes(answered_before=0, never_answered=0)


@dataclass(slots=True)
class Outage:
    """Measures how long the API has not answered, over repeated attempts."""

    times: RetryTimes
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
        if reached and passed >= self.times.notice and self.times.tell and not self._notified:
            self._notified = True
            self.times.tell(f"{error.message} Trying again for up to {limit - passed:.0f} s.")
        time.sleep(self.times.pause)
