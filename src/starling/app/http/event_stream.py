"""Events as server-sent events: the id is the number, the data carries the same type."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing
from typing import Any, Final

from starlette.background import BackgroundTask
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from starling.app.http.http_protocol import abort_connection
from starling.core.run_document.rows import EventRow
from starling.core.settings.schema import Limits
from starling.infra.fast_json import dumps

RUN_ID: Final = "X-Run-Id"  # the header of a stream that no `run_started` has to begin
_PING_SECONDS: Final = 15
_PING: Final = b": ping\n\n"
_CHUNK_BYTES: Final = 2**14  # small events are sent together, up to so many bytes
_log = logging.getLogger(__name__)


class SilentReaderError(TimeoutError):
    """The reader of a stream took nothing for `stream_write_seconds`."""


class ChunkStream(Response):
    """Sends chunks of server-sent events, and a comment after 15 s without one.

    Ends with the chunks or when the client disconnects, and then calls `on_disconnect`. A client that takes nothing for
    `stream_write_seconds` is disconnected, and what it never took is dropped; the socket keeps the same limit. Raises
    SilentReaderError where the server can't disconnect a client.
    """

    def __init__(
        self,
        chunks: AsyncGenerator[bytes],
        limits: Limits,
        status_code: int = 200,  # FastAPI reads it for the OpenAPI document
        *,
        on_disconnect: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.status_code = status_code
        self.media_type = "text/event-stream"  # of each object: the routes describe the content themselves
        self.background: BackgroundTask | None = None
        self._chunks = chunks
        self._limits = limits
        self._on_disconnect = on_disconnect
        self._ping_at = 0.0  # by the clock of the event loop
        self.init_headers({"Cache-Control": "no-store", "Connection": "keep-alive", "X-Accel-Buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the end."""
        loop = asyncio.get_running_loop()
        self._ping_at = loop.time() + _PING_SECONDS
        stream = loop.create_task(self._stream(send), name="stream")
        disconnect = loop.create_task(_disconnected(receive), name="disconnect")
        ended: set[asyncio.Task[None]] = set()
        try:
            while not ended:
                pause = max(0.0, self._ping_at - loop.time())
                ended, _ = await asyncio.wait({stream, disconnect}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                if not ended and loop.time() >= self._ping_at:
                    await self._send(send, _PING)
            if stream in ended:
                stream.result()
        except SilentReaderError:
            if not abort_connection(scope):
                raise
            seconds = self._limits.stream_write_seconds
            _log.warning("the reader of %s took nothing for %g s and was disconnected", scope["path"], seconds)
            await disconnect
        finally:
            stream.cancel()
            disconnect.cancel()
            await asyncio.gather(stream, disconnect, return_exceptions=True)
        if self._on_disconnect and (stream.cancelled() or stream.exception()):
            await self._on_disconnect()

    async def _stream(self, send: Send) -> None:
        async with aclosing(self._chunks) as chunks:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for chunk in chunks:
                await self._send(send, chunk)
            await self._send(send, b"", more=False)

    async def _send(self, send: Send, body: bytes, *, more: bool = True) -> None:
        loop, seconds = asyncio.get_running_loop(), self._limits.stream_write_seconds
        self._ping_at = loop.time() + seconds + _PING_SECONDS  # not before this is taken
        try:
            async with asyncio.timeout(seconds):
                await send({"type": "http.response.body", "body": body, "more_body": more})
        except TimeoutError:
            raise SilentReaderError from None
        self._ping_at = loop.time() + _PING_SECONDS


class EventStream(ChunkStream):
    """Sends the events of a run."""

    def __init__(self, batches: AsyncGenerator[Sequence[EventRow]], limits: Limits, status_code: int = 200) -> None:
        super().__init__(_chunks(batches), limits, status_code)


async def unless_disconnected[Result](receive: Receive, work: Coroutine[Any, Any, Result]) -> Result | None:
    """Return the result of some work, which ends early, with None, where the client disconnects."""
    loop = asyncio.get_running_loop()
    working = loop.create_task(work, name="work")
    disconnect = loop.create_task(_disconnected(receive), name="disconnect")
    try:
        await asyncio.wait({working, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        disconnect.cancel()
        await asyncio.gather(working, disconnect, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _chunks(batches: AsyncGenerator[Sequence[EventRow]]) -> AsyncGenerator[bytes]:
    async with aclosing(batches):
        async for batch in batches:
            for chunk in _chunks_of(batch):
                yield chunk


def _chunks_of(events: Iterable[EventRow]) -> Iterable[bytes]:
    """Return the events as text: each chunk ends with the event that makes it `_CHUNK_BYTES` long."""
    chunk = b""
    for event in events:
        data = event.json or dumps(event.data)
        chunk += b"id: %d\nevent: %b\ndata: %b\n\n" % (event.seq, event.type.encode(), data)
        if len(chunk) >= _CHUNK_BYTES:
            yield chunk
            chunk = b""
    if chunk:
        yield chunk
