"""Retry with backoff while Postgres is unavailable."""

from collections.abc import Awaitable, Callable
from math import inf
from time import monotonic
from typing import Final

from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from starling.core.errors import DatabaseUnavailableError

_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 1.0


async def retry_while_unavailable[T](
    attempt: Callable[[], Awaitable[T]], *, seconds: float = inf, give_up: Callable[[], bool] = lambda: False
) -> T:
    """Return what `attempt` returns; repeat it after DatabaseUnavailableError, with random exponential backoff.

    The last DatabaseUnavailableError is raised `seconds` after the first one, or once `give_up()` is true; it is asked
    after each failure. Every other error is raised at once. An attempt whose commit was in doubt is repeated too: it
    has to be idempotent.
    """
    try:
        return await attempt()  # AsyncRetrying takes processor time even where nothing fails
    except DatabaseUnavailableError:
        if seconds <= 0 or give_up():
            raise
    end = monotonic() + seconds
    retrying = AsyncRetrying(
        retry=retry_if_exception_type(DatabaseUnavailableError),
        stop=lambda _: monotonic() >= end or give_up(),
        wait=wait_random_exponential(multiplier=_FIRST_PAUSE_SECONDS, max=_LONGEST_PAUSE_SECONDS),
        reraise=True,
    )
    return await retrying(attempt)
