"""Ctrl-C and SIGTERM: the first one ends things in order, a second Ctrl-C at once.

Where there is something to drain, the first SIGTERM begins that, and the next signal counts as the first one.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any, Never

_log = logging.getLogger(__name__)
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_HEEDED: ContextVar["_Signals"] = ContextVar("starling_signals")


class StoppedBySignal(BaseException):
    """We were told to stop. Like KeyboardInterrupt, no handler of errors catches it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.signal = signal.Signals(number)

    @property
    def exit_code(self) -> int:
        """What shells expect of a program that a signal ended."""
        return 128 + self.signal


def install_signal_handlers() -> None:
    """Have both signals raise Stopped in the main thread, once."""
    for number in _SIGNALS:
        signal.signal(number, _stop)


def run_until_stopped[T](
    main: Coroutine[Any, Any, T], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> T:
    """Run `main` in a new event loop. A signal cancels it; when it has cleaned up, Stopped is raised."""
    return asyncio.run(_heeding(main), loop_factory=loop_factory)


@contextmanager
def drain_on_sigterm(*drains: Callable[[], None]) -> Generator[None]:
    """Have the first SIGTERM during the block call `drains`, which are to bring the block to its end."""
    signals = _HEEDED.get()
    signals.drains = drains
    try:
        yield
    finally:
        signals.drains = ()


class _Signals:
    """What signals do to a task that runs in a loop."""

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


async def _heeding[T](main: Coroutine[Any, Any, T]) -> T:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    signals = _Signals(task)
    _HEEDED.set(signals)
    for number in _SIGNALS:
        loop.add_signal_handler(number, signals, number)
    try:
        return await main
    except asyncio.CancelledError:
        if signals.stopped_by is not None:
            raise StoppedBySignal(signals.stopped_by) from None
        raise
    finally:
        _leave(loop, stopped=signals.signalled)


def _leave(loop: asyncio.AbstractEventLoop, *, stopped: bool) -> None:
    for number in _SIGNALS:
        loop.remove_signal_handler(number)
        signal.signal(number, _give_up if stopped else _stop)


def _stop(number: int, _: FrameType | None) -> Never:
    for each in _SIGNALS:
        signal.signal(each, _give_up)
    raise StoppedBySignal(number)


def _give_up(number: int, _: FrameType | None) -> None:
    """Who presses Ctrl-C again doesn't want to wait; who sends SIGTERM again may."""
    if number == signal.SIGINT:
        os._exit(128 + number)


@contextmanager
def treat_sigterm_as_success() -> Generator[None]:
    """Take SIGTERM for the regular end of a service; Ctrl-C goes on as Stopped."""
    try:
        yield
    except StoppedBySignal as stopped:
        if stopped.signal is not signal.SIGTERM:
            raise
