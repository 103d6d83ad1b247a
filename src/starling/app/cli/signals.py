"""Ctrl-C and SIGTERM in an event loop: the first signal stops in order, a second Ctrl-C at once.

Inside of `drain_on_sigterm` the first SIGTERM only starts draining; the next signal then counts as the first.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

from starling.app.cli.stop_signals import SIGNALS, StoppedBySignal, exit_on_second_interrupt, stop

_log = logging.getLogger(__name__)
_CURRENT: ContextVar["_Signals"] = ContextVar("starling_signals")


def run_until_stopped[T](
    main: Coroutine[Any, Any, T], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> T:
    """Run `main` in a new event loop. A signal cancels it; when it has cleaned up, StoppedBySignal is raised."""
    return asyncio.run(_with_signal_handlers(main), loop_factory=loop_factory)


def run_with[T, R](resource: AbstractAsyncContextManager[T], use: Callable[[T], Awaitable[R]]) -> R:
    """Open a resource in a new event loop and return what `use` of it returns. Raises StoppedBySignal."""

    async def opened() -> R:
        async with resource as found:
            return await use(found)

    return run_until_stopped(opened())


@contextmanager
def drain_on_sigterm(*drains: Callable[[], None]) -> Generator[None]:
    """During the block the first SIGTERM calls `drains`, which make the block end."""
    signals = _CURRENT.get()
    signals.drains = drains
    try:
        yield
    finally:
        signals.drains = ()


class _Signals:
    """Handles signals for a task of the event loop."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.drains: Sequence[Callable[[], None]] = ()
        self.signalled = False
        self.stopped_by: int | None = None
        self._task = task

    def __call__(self, number: int) -> None:
        if not self.signalled:
            _log.info("stopping", extra={"signal": signal.Signals(number).name})
        self.signalled = True
        if self.drains and number == signal.SIGTERM:
            drains, self.drains = self.drains, ()
            for drain in drains:
                drain()
        elif self.stopped_by is None:
            self.stopped_by = number
            self._task.cancel()
        elif number == signal.SIGINT:
            os._exit(128 + number)


async def _with_signal_handlers[T](main: Coroutine[Any, Any, T]) -> T:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    signals = _Signals(task)
    _CURRENT.set(signals)
    for number in SIGNALS:
        loop.add_signal_handler(number, signals, number)
    try:
        return await main
    except asyncio.CancelledError:
        if signals.stopped_by is not None:
            raise StoppedBySignal(signals.stopped_by) from None
        raise
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, exit_on_second_interrupt if signals.signalled else stop)
