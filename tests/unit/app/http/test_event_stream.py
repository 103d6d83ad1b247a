"""What an event stream sends, and when."""

import asyncio
from collections.abc import AsyncGenerator, MutableMapping, Sequence
from typing import Any

import pytest

from starling.app.http import event_stream
from starling.app.http.event_stream import EventStream
from starling.core.run_document.rows import EventRow
from starling.core.settings.schema import Limits

type Message = MutableMapping[str, Any]

EVENT = EventRow(1, "thinking", {"type": "thinking"})


async def never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def one_event(then: asyncio.Event) -> AsyncGenerator[Sequence[EventRow]]:
    yield [EVENT]
    await then.wait()


async def test_first_event_is_sent_in_the_loop_iteration_of_the_head() -> None:
    sent: list[object] = []
    ended = asyncio.Event()
    ended.set()

    async def send(message: Message) -> None:
        if not sent:
            asyncio.get_running_loop().call_soon(sent.append, "next iteration")
        sent.append(message.get("body", "head"))

    await EventStream(one_event(ended), Limits())({}, never, send)

    assert sent[:2] == ["head", b'id: 1\nevent: thinking\ndata: {"type":"thinking"}\n\n']


async def test_large_events_are_sent_one_by_one_and_small_ones_together() -> None:
    sent: list[bytes] = []

    async def send(message: Message) -> None:
        sent.append(message.get("body", b""))

    async def batches() -> AsyncGenerator[Sequence[EventRow]]:
        yield [EVENT, EVENT, *(EventRow(seq, "thinking", {}, b"x" * 20_000) for seq in (3, 4, 5)), EVENT]

    await EventStream(batches(), Limits())({}, never, send)

    assert [chunk.count(b"event: ") for chunk in sent] == [0, 3, 1, 1, 1, 0]


async def test_silent_reader_is_disconnected_and_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    aborted = asyncio.Event()

    async def send(message: Message) -> None:
        if message.get("body"):
            await never()

    async def receive() -> Message:
        await aborted.wait()
        return {"type": "http.disconnect"}

    scope = {"path": "/v1/runs/1/events", "extensions": {"starling.abort": aborted.set}}
    stream = EventStream(one_event(asyncio.Event()), Limits(stream_write_seconds=0.01))

    await stream(scope, receive, send)

    assert aborted.is_set()
    assert [record.getMessage() for record in caplog.records] == [
        "the reader of /v1/runs/1/events took nothing for 0.01 s and was disconnected"
    ]


async def test_stream_whose_comment_is_not_taken_in_time_ends_with_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "_PING_SECONDS", 0.01)

    async def send(message: Message) -> None:
        if message.get("body") == b": ping\n\n":
            await never()

    stream = EventStream(one_event(asyncio.Event()), Limits(stream_write_seconds=0.01))

    with pytest.raises(TimeoutError):
        await stream({}, never, send)
