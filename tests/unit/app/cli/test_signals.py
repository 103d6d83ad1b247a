"""Signals: the first one ends things in order."""

import asyncio
import logging
import os
import signal
from collections.abc import Generator

import pytest

from starling.app.cli.signals import drain_on_sigterm, run_until_stopped
from starling.app.cli.stop_signals import (
    StoppedBySignal,
    finish_before_stop,
    install_signal_handlers,
    treat_sigterm_as_success,
)

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(autouse=True)
def heeded() -> Generator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    install_signal_handlers()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_cancels_what_runs_and_waits_until_it_has_cleaned_up(number: int, code: int) -> None:
    cleaned: list[str] = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)
            cleaned.append("up")

    with pytest.raises(StoppedBySignal) as stopped:
        run_until_stopped(work())

    assert cleaned == ["up"]
    assert stopped.value.exit_code == code


def test_the_first_sigterm_drains_what_can_be_drained_and_nothing_is_cancelled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "starling")

    async def work() -> str:
        drained = asyncio.Event()
        with drain_on_sigterm(drained.set):
            os.kill(os.getpid(), signal.SIGTERM)
            await drained.wait()
        return "to its end"

    assert run_until_stopped(work()) == "to its end"
    assert caplog.messages == ["stopping"]


def test_draining_may_take_several_steps() -> None:
    done: list[str] = []

    async def work() -> None:
        drained = asyncio.Event()
        with drain_on_sigterm(lambda: done.append("told"), drained.set):
            os.kill(os.getpid(), signal.SIGTERM)
            await drained.wait()

    run_until_stopped(work())

    assert done == ["told"]


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_stops_what_is_draining(second: int) -> None:
    async def work() -> None:
        with drain_on_sigterm(lambda: os.kill(os.getpid(), second)):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.get_running_loop().create_future()

    with pytest.raises(StoppedBySignal) as stopped:
        run_until_stopped(work())

    assert stopped.value.signal == second


def test_ctrl_c_drains_nothing() -> None:
    drained: list[str] = []

    async def work() -> None:
        with drain_on_sigterm(lambda: drained.append("it")):
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.get_running_loop().create_future()

    with pytest.raises(StoppedBySignal):
        run_until_stopped(work())

    assert drained == []


def test_a_signal_outside_of_a_loop_raises_too() -> None:
    with pytest.raises(StoppedBySignal):
        os.kill(os.getpid(), signal.SIGINT)


def test_a_service_takes_sigterm_for_its_regular_end() -> None:
    with treat_sigterm_as_success():
        os.kill(os.getpid(), signal.SIGTERM)
    install_signal_handlers()

    with pytest.raises(StoppedBySignal), treat_sigterm_as_success():
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_a_block_that_has_to_finish_stops_after_it(number: int) -> None:
    done: list[str] = []

    def work() -> None:
        with finish_before_stop():
            os.kill(os.getpid(), number)
            done.append("whole")

    with pytest.raises(StoppedBySignal) as stopped:
        work()

    assert done == ["whole"]
    assert stopped.value.signal == number


def test_a_block_that_has_to_finish_inside_a_loop_counts_a_signal_once() -> None:
    async def work() -> None:
        with finish_before_stop():
            os.kill(os.getpid(), signal.SIGINT)
        await asyncio.get_running_loop().create_future()

    with pytest.raises(StoppedBySignal) as stopped:
        run_until_stopped(work())

    assert stopped.value.signal == signal.SIGINT
