"""The lives that a process executes, so that one of them can be ended from outside."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Generator
from contextlib import asynccontextmanager, contextmanager

from starling.core.errors import RunCancelledError, SuspendedError
from starling.core.runs import Run


class ActiveRun:
    """One life of a run, that may be cancelled at any moment."""

    def __init__(self, *, cancelled: bool) -> None:
        self.cancelled = cancelled
        self._limit: asyncio.Timeout | None = None

    def cancel(self) -> None:
        """Cut off what is going on inside of `within`; what follows it is let be."""
        self.cancelled = True
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time())

    @asynccontextmanager
    async def within(self, seconds: float) -> AsyncGenerator[None]:
        """Let the block last so long. Raises TimeoutError, or RunCancelledError once the life is cancelled."""
        if self.cancelled:
            raise RunCancelledError("The run was cancelled.")
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                self._limit = limit
                try:
                    yield
                finally:
                    self._limit = None
        except (TimeoutError, SuspendedError):  # nobody waits for an answer to a cancelled run
            if self.cancelled:
                raise RunCancelledError("The run was cancelled.") from None
            raise


class ActiveRuns:
    """All lives of a process, by run. A run that was asked to end before its life began here is known too."""

    def __init__(self) -> None:
        self._living: dict[str, ActiveRun] = {}
        self._asked: frozenset[str] = frozenset()

    @contextmanager
    def living(self, run: Run) -> Generator[ActiveRun]:
        """Hold a life for as long as the block lasts."""
        life = ActiveRun(cancelled=run.cancelled or run.id in self._asked)
        self._living[run.id] = life
        try:
            yield life
        finally:
            if self._living.get(run.id) is life:  # the run's next life may have begun here
                del self._living[run.id]

    def cancel(self, run_id: str) -> None:
        """Cancel the life of a run, if it is one of these."""
        if (life := self._living.get(run_id)) is not None:
            life.cancel()

    def cancel_all(self, run_ids: Collection[str]) -> None:
        """Cancel those of these runs that live here, and those that are just about to."""
        self._asked = frozenset(run_ids)
        for run_id in run_ids:
            self.cancel(run_id)
