"""Repeated requests to a service that takes traces or scores, while it is out of reach, busy or failing."""

from collections.abc import Callable
from typing import Any, Final

import httpx
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential
from tenacity.wait import wait_base

PAUSE: Final = wait_exponential(multiplier=0.5, max=5)
_ATTEMPTS: Final = 3
_TOO_MANY_REQUESTS, _SERVER_ERROR = 429, 500


def attempts(wait: wait_base, sleep: Callable[[float], None]) -> Retrying:
    """Return what calls a function up to three times while its errors are temporary, and raises the last one.

    `sleep` makes the pauses: it gets their seconds, and may return earlier.
    """
    return Retrying(
        retry=retry_if_exception(_is_temporary),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait,
        sleep=sleep,
        reraise=True,
    )


def _is_temporary(error: BaseException) -> bool:
    status: Any = getattr(error, "status_code", None)
    if status is None:
        return isinstance(error, httpx.TransportError)
    return status == _TOO_MANY_REQUESTS or status >= _SERVER_ERROR
