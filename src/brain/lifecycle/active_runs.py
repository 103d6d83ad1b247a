"""The runs that a process executes, so that each can be cancelled from outside."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Generator
from contextlib import asynccontextmanager, contextmanager

from starling.core.errors import RunCancelledError, SuspendedError
from starling.core.runs import Run


class ActiveRun:
    """One execution of a run in this process; it may be cancelled at any moment."""

    def __init__(self, *, cancelled: bool) -> None:
        self.cancelled = cancelled
        self._limit: asyncio.Timeout | None = None

    def cancel(self) -> None:
        """End the block of `time_limit` now; code after it is not affected."""
        self.cancelled = True
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time())

    def shorten(self, seconds: float) -> None:
        """End the block of `time_limit` in so many seconds, unless it ends earlier."""
        if self._limit is not None and (end := self._limit.when()) is not None:
            self._limit.reschedule(min(end, asyncio.get_running_loop().time() + seconds))

    @asynccontextmanager
    async def time_limit(self, seconds: float) -> AsyncGenerator[None]:
        """Limit the block to so many seconds. Raises TimeoutError, or RunCancelledError once the run is cancelled."""
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
        except (TimeoutError, SuspendedError):  # a cancelled run needs no answer
            if self.cancelled:
                raise RunCancelledError("The run was cancelled.") from None
            raise


class ActiveRuns:
    """All executions in a process, by run. A cancellation that arrives before the execution begins is kept."""

    def __init__(self) -> None:
        self._active: dict[str, ActiveRun] = {}
        self._requested: frozenset[str] = frozenset()

    @contextmanager
    def track(self, run: Run) -> Generator[ActiveRun]:
        """Register an execution for as long as the block lasts."""
        active = ActiveRun(cancelled=run.cancelled or run.id in self._requested)
        self._active[run.id] = active
        try:
            yield active
        finally:
            if self._active.get(run.id) is active:  # the run's next execution may have begun here
                del self._active[run.id]

    def cancel(self, run_id: str) -> None:
        """Cancel a run if this process executes it."""
        if (active := self._active.get(run_id)) is not None:
            active.cancel()

    def cancel_all(self, run_ids: Collection[str]) -> None:
        """Cancel those of these runs that this process executes, now or soon."""
        self._requested = frozenset(run_ids)
        for run_id in run_ids:
            self.cancel(run_id)
