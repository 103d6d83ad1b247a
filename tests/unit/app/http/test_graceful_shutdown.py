"""What a stream sends that is cancelled at shutdown: one complete response."""

import asyncio
from collections.abc import Sequence

import pytest
from starlette.types import Message, Receive, Scope, Send

from starling.app.http.graceful_shutdown import GracefulShutdown

_START: Message = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/event-stream; charset=utf-8")],
}
_CHUNK: Message = {"type": "http.response.body", "body": b"id: 1\n\n", "more_body": True}
_END: Message = {"type": "http.response.body", "body": b"", "more_body": False}


async def _closed_after(messages: Sequence[Message], *, blocked: bool = False) -> list[Message]:
    """Return what the server takes of a stream that is closed after these messages; `blocked`: while it sends the last.

    A server whose buffer is full takes a message only after the client has read.
    """
    taken: list[Message] = []
    sent, readable = asyncio.Event(), asyncio.Event()

    async def application(_scope: Scope, _receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)
        sent.set()
        await asyncio.Event().wait()

    async def send(message: Message) -> None:
        if blocked and message is messages[-1]:
            sent.set()
            await readable.wait()
        taken.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    shutdown = GracefulShutdown(application)
    scope: Scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(shutdown(scope, receive, send))
        await sent.wait()
        shutdown.close()
    return taken


@pytest.mark.parametrize("messages", [[_START], [_START, _CHUNK], [_START, _CHUNK, _END]])
async def test_open_stream_is_completed_and_an_ended_one_gets_no_further_message(messages: list[Message]) -> None:
    assert await _closed_after(messages) == [*messages, *[_END] * (_END not in messages)]


async def test_stream_whose_end_is_not_yet_taken_is_completed() -> None:
    assert await _closed_after([_START, _CHUNK, _END], blocked=True) == [_START, _CHUNK, _END]


async def test_stream_that_has_not_started_is_answered_with_503() -> None:
    start, body = await _closed_after([_START], blocked=True)

    assert (start["status"], body.get("more_body", False)) == (503, False)
