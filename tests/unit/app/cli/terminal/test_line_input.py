"""Lines from a terminal, and signals that come while one is awaited."""

import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import TextIO

import pytest

from starling.app.cli.stop_signals import StoppedBySignal, install_signal_handlers
from starling.app.cli.terminal.prompts import read_line


@pytest.fixture
def keyboard() -> Generator[tuple[TextIO, TextIO]]:
    """Return what the program reads and what the person types into."""
    reading, writing = os.pipe()
    with os.fdopen(reading, encoding="utf-8") as typed, os.fdopen(writing, "w", encoding="utf-8") as keys:
        yield typed, keys


@pytest.fixture(autouse=True)
def handlers() -> Generator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    install_signal_handlers()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@contextmanager
def signal_in_another_thread(seconds: float = 0.1) -> Generator[None]:
    """Let Ctrl-C come after `seconds` without interrupting the main thread's system call, as if just before it."""
    ctrl_c = threading.Timer(seconds, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT))
    ctrl_c.start()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        ctrl_c.join()


def test_a_line_is_returned_without_its_end(
    keyboard: tuple[TextIO, TextIO], capsys: pytest.CaptureFixture[str]
) -> None:
    typed, keys = keyboard
    print("sí", file=keys, flush=True)

    assert read_line("Approve? ", typed=typed) == "sí"
    assert capsys.readouterr().out == "Approve? "


def test_ctrl_d_raises_eof_error(keyboard: tuple[TextIO, TextIO]) -> None:
    typed, keys = keyboard
    keys.close()

    with pytest.raises(EOFError):
        read_line("Approve? ", typed=typed)


@pytest.mark.timeout(60)
def test_a_signal_that_does_not_interrupt_the_read_stops_it(keyboard: tuple[TextIO, TextIO]) -> None:
    typed, _ = keyboard

    with pytest.raises(StoppedBySignal), signal_in_another_thread():
        read_line("Approve? ", typed=typed)


@pytest.mark.timeout(60)
def test_a_signal_whose_handler_returns_does_not_end_the_line(keyboard: tuple[TextIO, TextIO]) -> None:
    typed, keys = keyboard

    def type_on(*_: object) -> None:
        print("later", file=keys, flush=True)

    signal.signal(signal.SIGINT, type_on)

    with signal_in_another_thread():
        assert read_line("Approve? ", typed=typed) == "later"
