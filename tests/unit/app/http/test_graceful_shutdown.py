"""What a stream sends that is cancelled at shutdown: one complete response."""

import asyncio
import json
from collections.abc import Sequence

import pytest
from starlette.types import Message, Receive, Scope, Send

from starling.app.http.graceful_shutdown import GracefulShutdown
from starling.core.errors import DrainingError

_START: Message = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/event-stream; charset=utf-8")],
}
_CHUNK: Message = {"type": "http.response.body", "body": b"id: 1\n\n", "more_body": True}
_END: Message = {"type": "http.response.body", "body": b"", "more_body": False}


async def _closed_after(messages: Sequence[Message], *, blocked: bool = False, path: str = "/") -> list[Message]:
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
    scope: Scope = {"type": "http", "method": "GET", "path": path, "headers": []}
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


async def test_request_that_comes_last_is_answered_with_503_when_the_server_ends_it() -> None:
    taken: list[Message] = []
    begun = asyncio.Event()

    async def application(_scope: Scope, _receive: Receive, _send: Send) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def send(message: Message) -> None:
        taken.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    shutdown = GracefulShutdown(application)
    shutdown.close()
    await shutdown.cut_off()
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        request = tasks.create_task(shutdown({"type": "http", "method": "GET", "path": "/"}, receive, send))
        await begun.wait()
        request.cancel()

    assert taken[0]["status"] == 503


async def _failed_after(messages: Sequence[Message], path: str, error: Exception) -> list[Message]:
    """Return what the server takes of a stream in which an error is raised."""
    taken: list[Message] = []

    async def application(_scope: Scope, _receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)
        raise error

    async def send(message: Message) -> None:
        taken.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    with pytest.raises(type(error)):
        await GracefulShutdown(application)({"type": "http", "path": path, "headers": []}, receive, send)
    return taken


def _error_in(message: Message) -> dict[str, str]:
    """Return the error of the last event of a stream for an OpenAI client."""
    assert not message["more_body"]
    event = bytes(message["body"])
    assert event.endswith(b"\n\n")
    return json.loads(event.removeprefix(b"event: error\n").removeprefix(b"data: "))["error"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_stream_of_an_openai_client_that_is_closed_ends_with_the_error(path: str) -> None:
    *before, last = await _closed_after([_START, _CHUNK], path=path)

    assert before == [_START, _CHUNK]
    assert _error_in(last)["code"] == "draining"


async def test_ended_stream_of_an_openai_client_gets_no_error() -> None:
    assert await _closed_after([_START, _CHUNK, _END], path="/v1/responses") == [_START, _CHUNK, _END]


async def test_stream_of_an_openai_client_in_which_an_error_is_raised_ends_with_it() -> None:
    unknown = await _failed_after([_START, _CHUNK], "/v1/responses", ValueError("a secret"))
    known = RuntimeError("Caught handled exception, but response already started.")
    known.__cause__ = DrainingError("It ends.")
    ours = await _failed_after([_START, _CHUNK], "/v1/responses", known)

    assert _error_in(unknown[-1])["code"] == "internal"
    assert "a secret" not in _error_in(unknown[-1])["message"]
    assert _error_in(ours[-1])["message"] == "It ends."


async def test_other_stream_in_which_an_error_is_raised_has_no_end() -> None:
    assert await _failed_after([_START, _CHUNK], "/v1/agent/run", ValueError("x")) == [_START, _CHUNK]
