"""What an event stream sends, and when."""

import asyncio
from collections.abc import AsyncGenerator, MutableMapping, Sequence
from typing import Any

import pytest

from starling.app.http.event_stream import EventStream
from starling.core.events import StoredEvent
from starling.core.settings.schema import Limits

type Message = MutableMapping[str, Any]

EVENT = StoredEvent(1, "thinking", {"type": "thinking"})


async def never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def one_event(then: asyncio.Event) -> AsyncGenerator[Sequence[StoredEvent]]:
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


async def test_stream_whose_comment_is_not_taken_in_time_ends_with_a_timeout() -> None:
    async def send(message: Message) -> None:
        if message.get("body") == b": ping\n\n":
            await never()

    stream = EventStream(one_event(asyncio.Event()), Limits(stream_ping_seconds=0.01, stream_write_seconds=0.01))

    with pytest.raises(TimeoutError):
        await stream({}, never, send)
