"""Ctrl-C and SIGTERM outside of an event loop: the first signal stops the command, a second Ctrl-C ends it at once."""

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Final, Never

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class StoppedBySignal(BaseException):
    """A signal asked the process to stop. A BaseException like KeyboardInterrupt: error handlers don't catch it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.signal = signal.Signals(number)

    @property
    def exit_code(self) -> int:
        """The exit code of a program that was ended by a signal."""
        return 128 + self.signal


def install_signal_handlers() -> None:
    """Make both signals raise StoppedBySignal in the main thread, once."""
    for number in SIGNALS:
        signal.signal(number, stop)


def stop(number: int, _: FrameType | None) -> Never:
    """Handle a first signal. Raises StoppedBySignal."""
    for each in SIGNALS:
        signal.signal(each, exit_on_second_interrupt)
    raise StoppedBySignal(number)


def exit_on_second_interrupt(number: int, _: FrameType | None) -> None:
    """Exit at once on a second Ctrl-C; ignore a second SIGTERM."""
    if number == signal.SIGINT:
        os._exit(128 + number)


@contextmanager
def finish_before_stop() -> Generator[None]:
    """Handle signals that come during the block when it ends: what it draws stays whole. For the main thread.

    An event loop calls its own handlers, which don't interrupt what runs: they are left alone.
    """
    received: list[int] = []
    raising = [number for number in SIGNALS if signal.getsignal(number) in (stop, exit_on_second_interrupt)]
    handlers = {number: signal.signal(number, lambda number, _: received.append(number)) for number in raising}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in received:
            signal.raise_signal(number)


@contextmanager
def treat_sigterm_as_success() -> Generator[None]:
    """Treat SIGTERM as the regular end of a service; Ctrl-C stays StoppedBySignal."""
    try:
        yield
    except StoppedBySignal as stopped:
        if stopped.signal is not signal.SIGTERM:
            raise
