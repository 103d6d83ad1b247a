"""Retries while Postgres is unavailable."""

from collections.abc import Awaitable, Callable

import pytest

from starling.core.errors import DatabaseUnavailableError, LeaseLostError
from starling.infra.postgres.availability import retry_while_unavailable


def failing(errors: list[Exception]) -> Callable[[], Awaitable[str]]:
    """Return an attempt that raises each of the errors once and then succeeds."""

    async def attempt() -> str:
        if errors:
            raise errors.pop(0)
        return "done"

    return attempt


def away(number: int) -> DatabaseUnavailableError:
    return DatabaseUnavailableError(f"away {number}", "")


async def test_attempt_that_succeeds_is_made_once() -> None:
    assert await retry_while_unavailable(failing([]), give_up=lambda: True) == "done"


async def test_attempt_is_repeated_until_postgres_answers() -> None:
    errors: list[Exception] = [away(1), away(2), away(3)]

    assert await retry_while_unavailable(failing(errors), seconds=60) == "done"
    assert not errors


async def test_last_error_is_raised_once_the_caller_gives_up() -> None:
    errors: list[Exception] = [away(1), away(2), away(3)]

    with pytest.raises(DatabaseUnavailableError, match="away 2"):
        await retry_while_unavailable(failing(errors), give_up=lambda: len(errors) == 1)


async def test_first_error_is_raised_where_no_time_is_left() -> None:
    with pytest.raises(DatabaseUnavailableError, match="away 1"):
        await retry_while_unavailable(failing([away(1), away(2)]), seconds=0)


async def test_other_errors_are_raised_without_a_retry() -> None:
    errors: list[Exception] = [away(1), LeaseLostError("run", 1), away(2)]

    with pytest.raises(LeaseLostError):
        await retry_while_unavailable(failing(errors), seconds=60)
    assert len(errors) == 1
