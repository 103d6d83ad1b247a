"""Events as server-sent events: the id is the number, the data carries the same type."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing, suppress
from typing import Final

from starlette.background import BackgroundTask
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from starling.app.http.http_protocol import abort_connection
from starling.core.events.stream import StoredEvent
from starling.core.settings.schema import Limits
from starling.infra.fast_json import dumps

RUN_ID: Final = "X-Run-Id"  # the header of a stream that no `run_started` has to begin
_PING_SECONDS: Final = 15
_PING: Final = b": ping\n\n"
_CHUNK_BYTES: Final = 2**14  # small events are sent together, up to so many bytes
_log = logging.getLogger(__name__)


class SilentReaderError(TimeoutError):
    """The reader of a stream took nothing for `stream_write_seconds`."""


class EventStream(Response):
    """Sends events, and a comment after 15 s without one.

    Ends with the batches or when the client disconnects. A client that takes nothing for `stream_write_seconds` is
    disconnected, and what it never took is dropped; the socket keeps the same limit. Raises SilentReaderError where
    the server can't disconnect a client.
    """

    def __init__(
        self,
        batches: AsyncGenerator[Sequence[StoredEvent]],
        limits: Limits,
        status_code: int = 200,  # FastAPI reads it for the OpenAPI document
    ) -> None:
        self.status_code = status_code
        self.media_type = "text/event-stream"  # of each object: the routes describe the content themselves
        self.background: BackgroundTask | None = None
        self._batches = batches
        self._limits = limits
        self.init_headers({"Cache-Control": "no-store", "Connection": "keep-alive", "X-Accel-Buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the end."""
        connected = asyncio.timeout(None)
        watch = asyncio.get_running_loop().create_task(_end_on_disconnect(receive, connected), name="disconnect")
        chunks = _Chunks(send, self._limits, connected)
        try:
            async with connected, aclosing(self._batches) as batches:
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                chunks.ping_later()
                async for batch in batches:
                    for chunk in _chunks_of(batch):
                        await chunks.send(chunk)
                await chunks.send(b"", more=False)
        except TimeoutError as error:
            if isinstance(chunks.failure or error, SilentReaderError):
                if not abort_connection(scope):
                    raise SilentReaderError from error
                seconds = self._limits.stream_write_seconds
                _log.warning("the reader of %s took nothing for %g s and was disconnected", scope["path"], seconds)
                await watch
            elif chunks.failure or not connected.expired():
                raise
        finally:
            watch.cancel()
            await asyncio.gather(watch, *chunks.end(), return_exceptions=True)


class _Chunks:
    """Sends the chunks of a stream, and a comment whenever none was sent for 15 s."""

    def __init__(self, send: Send, limits: Limits, connected: asyncio.Timeout) -> None:
        self.failure: BaseException | None = None  # of a comment that wasn't taken
        self._send = send
        self._limits = limits
        self._connected = connected
        self._loop = asyncio.get_running_loop()
        self._sent_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._ping: asyncio.Task[None] | None = None

    async def send(self, body: bytes, *, more: bool = True) -> None:
        self._sent_at = self._loop.time()
        try:
            async with asyncio.timeout(self._limits.stream_write_seconds):
                await self._send({"type": "http.response.body", "body": body, "more_body": more})
        except TimeoutError:
            raise SilentReaderError from None

    def ping_later(self) -> None:
        """Send a comment each time that nothing was sent for a while, from now on."""
        now, seconds = self._loop.time(), _PING_SECONDS
        if now >= self._sent_at + seconds:
            self._sent_at = now
            if self._ping is None:
                self._ping = self._loop.create_task(self.send(_PING), name="ping")
                self._ping.add_done_callback(self._pinged)
        self._timer = self._loop.call_at(self._sent_at + seconds, self.ping_later)

    def end(self) -> Iterable[asyncio.Task[None]]:
        """Send no more comments; return the one that is being sent."""
        if self._timer is not None:
            self._timer.cancel()
        if self._ping is None:
            return ()
        self._ping.cancel()
        return (self._ping,)

    def _pinged(self, ping: asyncio.Task[None]) -> None:
        self._ping = None
        if not ping.cancelled() and (failure := ping.exception()):
            self.failure = failure
            _end(self._connected)


async def _end_on_disconnect(receive: Receive, connected: asyncio.Timeout) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    _end(connected)


def _end(connected: asyncio.Timeout) -> None:
    with suppress(RuntimeError):  # it has ended meanwhile
        connected.reschedule(0)  # a moment that has passed


def _chunks_of(events: Iterable[StoredEvent]) -> Iterable[bytes]:
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
