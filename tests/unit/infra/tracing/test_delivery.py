"""Batches that a thread sends."""

import threading

import pytest

from starling.infra.tracing import delivery
from starling.infra.tracing.delivery import BatchThread


@pytest.fixture
def gathering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a thread wait for further items until it is closed, however slow the test is."""
    monkeypatch.setattr(delivery, "_GATHER_SECONDS", 60)


@pytest.mark.usefixtures("gathering")
def test_all_items_are_sent_in_order_in_batches_before_it_closes() -> None:
    sent: list[list[int]] = []
    thread = BatchThread[int]("test", sent.append, limit=10, batch=2)

    taken = [thread.add(number) for number in range(5)]
    thread.close()

    assert taken == [True] * 5
    assert sent == [[0, 1], [2, 3], [4]]


def test_items_are_sent_while_it_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_GATHER_SECONDS", 0.01)
    sent = threading.Event()
    thread = BatchThread[int]("test", lambda _: sent.set(), limit=10, batch=2)

    thread.add(1)

    assert sent.wait(60)
    thread.close()


def test_items_that_come_while_a_batch_is_sent_are_sent_with_later_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delivery, "_GATHER_SECONDS", 0.01)
    sent: list[list[int]] = []
    first = threading.Event()

    def send(batch: list[int]) -> None:
        sent.append(batch)
        if batch == [0]:
            monkeypatch.setattr(delivery, "_GATHER_SECONDS", 60)
            thread.add(1)
            first.set()

    thread = BatchThread[int]("test", send, limit=10, batch=10)
    thread.add(0)
    assert first.wait(60)
    thread.add(2)
    thread.close()

    assert sent == [[0], [1, 2]]


@pytest.mark.usefixtures("gathering")
def test_items_beyond_the_limit_are_refused() -> None:
    sent: list[list[int]] = []
    thread = BatchThread[int]("test", sent.append, limit=2, batch=10)

    taken = [thread.add(number) for number in range(3)]
    thread.close()

    assert (taken, sent) == ([True, True, False], [[0, 1]])


def test_batches_after_one_that_failed_are_sent(caplog: pytest.LogCaptureFixture) -> None:
    sent: list[list[int]] = []

    def send(batch: list[int]) -> None:
        sent.append(batch)
        if batch == [0]:
            raise RuntimeError("broken")

    thread = BatchThread[int]("test", send, limit=10, batch=1)
    for number in range(2):
        thread.add(number)
    thread.close()

    assert sent == [[0], [1]]
    assert "a batch of 1 could not be sent" in caplog.text
