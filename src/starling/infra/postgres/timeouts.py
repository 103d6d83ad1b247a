"""Connections that don't wait for ever: a server that was frozen keeps neither its own time limits nor TCP's."""

from time import monotonic
from typing import Any, Final

from psycopg import AsyncConnection, Connection, OperationalError
from psycopg.abc import PQGen

KEEPALIVE: Final[dict[str, Any]] = {"keepalives_idle": 30, "keepalives_interval": 5, "keepalives_count": 3}
_INTERVAL = 0.1  # psycopg's own: how often it looks up from waiting


class BoundedConnection(AsyncConnection[Any]):
    """Waits `answer_seconds` for each answer; then it is closed, and OperationalError is raised."""

    answer_seconds = 40.0
    used = False  # by anybody since it was opened

    async def wait[T](
        self,
        gen: PQGen[T],
        interval: float = _INTERVAL,
        timeout: float | None = None,  # noqa: ASYNC109 - the base class has it
    ) -> T:
        """Consume a generator of psycopg's; a caller that sets a time limit knows what it waits for."""
        if timeout is not None:
            return await super().wait(gen, interval, timeout)
        begun = monotonic()
        try:
            return await super().wait(gen, interval, self.answer_seconds)
        except OperationalError:
            if monotonic() - begun < self.answer_seconds:
                raise
            self.pgconn.finish()  # what it would answer now is meant for nobody
            raise OperationalError(f"no answer within {self.answer_seconds:g} s") from None


class BoundedThreadConnection(Connection[Any]):
    """The same for threads."""

    answer_seconds = 40.0

    def wait[T](self, gen: PQGen[T], interval: float = _INTERVAL, timeout: float | None = None) -> T:
        """Consume a generator of psycopg's."""
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
