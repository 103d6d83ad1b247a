"""Connections with a time limit for each answer: a frozen server enforces neither its own limits nor those of TCP."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from time import monotonic
from typing import Any, Final

from psycopg import AsyncConnection, Connection, OperationalError
from psycopg.abc import PQGen
from psycopg.errors import ReadOnlySqlTransaction

KEEPALIVE: Final[dict[str, Any]] = {"keepalives_idle": 30, "keepalives_interval": 5, "keepalives_count": 3}
_ANSWER_SECONDS: ContextVar[float] = ContextVar("starling_answer_seconds", default=inf)
_INTERVAL = 0.1  # psycopg's default: how often a wait is interrupted


@contextmanager
def answers_within(seconds: float) -> Generator[None]:
    """Wait at most so long for each answer in the block and in tasks begun there, where a connection waits longer."""
    before = _ANSWER_SECONDS.set(seconds)
    try:
        yield
    finally:
        _ANSWER_SECONDS.reset(before)


class BoundedConnection(AsyncConnection[Any]):
    """Waits `answer_seconds` for each answer; then it is closed, and OperationalError is raised.

    It is also closed where the server only reads: the address may lead to another server by now.
    """

    answer_seconds = 40.0
    used = False  # since it was opened

    async def wait[T](
        self,
        gen: PQGen[T],
        interval: float = _INTERVAL,
        timeout: float | None = None,  # noqa: ASYNC109 - the base class has it
    ) -> T:
        """Consume one of psycopg's generators; an explicit `timeout` replaces `answer_seconds`."""
        if timeout is not None:
            return await super().wait(gen, interval, timeout)
        begun, seconds = monotonic(), min(self.answer_seconds, _ANSWER_SECONDS.get())
        try:
            return await super().wait(gen, interval, seconds)
        except ReadOnlySqlTransaction:
            self.pgconn.finish()
            raise
        except OperationalError:
            if monotonic() - begun < seconds:
                raise
            self.pgconn.finish()  # a late answer would be read as the answer to the next statement
            raise OperationalError(f"no answer within {seconds:g} s") from None


class BoundedThreadConnection(Connection[Any]):
    """The synchronous form of BoundedConnection."""

    answer_seconds = 40.0

    def wait[T](self, gen: PQGen[T], interval: float = _INTERVAL, timeout: float | None = None) -> T:
        """Consume one of psycopg's generators."""
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        begun = monotonic()
        try:
            return super().wait(gen, interval, self.answer_seconds)
        except OperationalError:
            if monotonic() - begun < self.answer_seconds:
                raise
            self.pgconn.finish()
            raise OperationalError(f"no answer within {self.answer_seconds:g} s") from None
