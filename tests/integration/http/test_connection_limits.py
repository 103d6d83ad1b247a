"""Limits of connections: their number, and the time and size of headers, on a real socket."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from starling.app.http import uvicorn_server
from starling.app.http.http_protocol import LimitedHttpProtocol
from starling.app.http.listener import bind
from starling.app.http.uvicorn_server import serving

SECONDS = 60
HEADER_SECONDS = 0.2
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


def an_app() -> FastAPI:
    """An app whose `/stream` sends a line, and another one once headers would be late several times over."""
    app = FastAPI()
    app.state.api = SimpleNamespace(draining=False)

    @app.get("/")
    async def _root() -> str:
        return "here"

    @app.get("/stream")
    async def _stream() -> StreamingResponse:
        async def lines() -> AsyncGenerator[bytes]:
            yield b"first"
            await asyncio.sleep(5 * HEADER_SECONDS)
            yield b"last"

        return StreamingResponse(lines())

    return app


@asynccontextmanager
async def server(**limits: float) -> AsyncGenerator[int]:
    """Serve the app; gives the port."""
    listener = bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    with pytest.MonkeyPatch.context() as patch:
        for name, limit in {"header_seconds": HEADER_SECONDS, **limits}.items():
            patch.setattr(LimitedHttpProtocol, name, limit)
        async with asyncio.timeout(SECONDS), serving(an_app(), listener):
            yield port


async def sent(port: int, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    return reader, writer


async def answer(port: int, data: bytes) -> bytes:
    """Send the bytes, and return what comes up to the end of the connection."""
    reader, writer = await sent(port, data)
    received = await reader.read()
    writer.close()
    return received


@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param(b"", b"", id="nothing"),
        pytest.param(GET + b"X-Slow: ", b"HTTP/1.1 408 ", id="unfinished headers"),
        pytest.param(GET + b"\r\n" + GET, b"HTTP/1.1 200 ", id="unfinished headers after a request"),
        pytest.param(GET + b"\r\n\r\n", b"HTTP/1.1 200 ", id="an empty line after a request"),
    ],
)
async def test_connection_without_complete_headers_is_closed(
    data: bytes, status: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uvicorn_server, "_IDLE_SECONDS", 1)
    async with server() as port:
        received = await answer(port, data)

    assert received.startswith(status)


async def test_headers_that_come_byte_by_byte_are_cut_off() -> None:
    async with server() as port:
        reader, writer = await sent(port, GET)
        received = asyncio.get_running_loop().create_task(reader.read())
        while not received.done():
            writer.write(b"X")
            await asyncio.wait({received}, timeout=HEADER_SECONDS / 4)
        writer.close()

    assert received.result().startswith(b"HTTP/1.1 408 ")


async def test_open_stream_outlasts_the_time_for_headers() -> None:
    async with server() as port:
        received = await answer(port, GET.replace(b"/ ", b"/stream ", 1) + b"Connection: close\r\n\r\n")

    assert b"first" in received
    assert b"last" in received


async def test_body_of_a_request_that_was_answered_already_is_dropped_and_the_answer_arrives() -> None:
    body = b"x" * 100_000
    post = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with server(header_bytes=1_024, header_seconds=SECONDS) as port:
        reader, writer = await sent(port, post)
        first = await reader.readuntil(b"Method Not Allowed")
        writer.write(body + GET + b"Connection: close\r\n\r\n")
        rest = await reader.read()
        writer.close()

    assert first.startswith(b"HTTP/1.1 405 ")
    assert b"HTTP/1.1 200 " in rest


async def test_unfinished_body_of_a_request_that_was_answered_already_ends_its_connection() -> None:
    post = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
    async with server() as port:
        reader, writer = await sent(port, post)
        await reader.readuntil(b"Method Not Allowed")
        writer.write(b"x")
        rest = await reader.read()
        writer.close()

    assert rest.endswith(b'"}')


async def test_idle_connection_after_a_response_outlasts_the_time_for_headers() -> None:
    async with server() as port:
        reader, writer = await sent(port, GET + b"\r\n")
        await reader.readuntil(b"here")
        await asyncio.sleep(3 * HEADER_SECONDS)
        writer.write(GET + b"Connection: close\r\n\r\n")
        second = await reader.read()
        writer.close()

    assert b"HTTP/1.1 200 " in second


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param(b"X-Large: " + b"x" * 4_000, id="unfinished"),
        pytest.param(b"X-Large: " + b"x" * 4_000 + b"\r\n\r\n", id="complete"),
        pytest.param(b"".join(b"X-%d: x\r\n" % number for number in range(400)) + b"\r\n", id="many"),
        pytest.param(b"X-Large: " + b"x" * 4_000 + b"\r\nContent-Length: 3\r\n\r\nabc", id="with a body"),
    ],
)
async def test_too_large_headers_are_refused(headers: bytes) -> None:
    async with server(header_bytes=2_048, header_seconds=SECONDS) as port:
        received = await answer(port, GET + headers)

    assert received.startswith(b"HTTP/1.1 431 ")


async def test_connection_beyond_the_limit_is_refused_until_one_is_closed() -> None:
    async with server(most_connections=1, header_seconds=SECONDS) as port:
        reader, writer = await sent(port, GET + b"\r\n")
        await reader.readuntil(b"here")

        refused = await answer(port, b"")
        writer.write(GET + b"Connection: close\r\n\r\n")
        await reader.read()
        writer.close()
        accepted = await answer(port, GET + b"Connection: close\r\n\r\n")

    assert refused.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1" in refused
    assert accepted.startswith(b"HTTP/1.1 200 ")
