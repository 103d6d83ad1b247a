"""Events as server-sent events: the id is the number, the data carries the same type."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from typing import Final

from starlette.background import BackgroundTask
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from starling.core.events import StoredEvent
from starling.core.settings import Limits
from starling.infra.fast_json import dumps

RUN_ID: Final = "X-Run-Id"  # the header of a stream that no `run_started` has to begin
_PING: Final = b": ping\n\n"


class EventStream(Response):
    """Sends each batch of events as one chunk, and a comment after `stream_ping_seconds` without an event.

    Ends with the batches or when the client disconnects. A client that takes nothing for `stream_write_seconds` is cut
    off by a TimeoutError; the socket keeps the same limit, and drops what such a client never took.
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
        try:
            async with connected:
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                async with aclosing(self._chunks()) as chunks:
                    async for chunk in chunks:
                        await self._send(send, chunk, more=True)
                await self._send(send, b"", more=False)
        except TimeoutError:
            if not connected.expired():
                raise
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    async def _chunks(self) -> AsyncGenerator[bytes]:
        loop = asyncio.get_running_loop()
        async with aclosing(self._batches) as batches:
            while True:
                # a task of its own: a ping must not break off the read that it interrupts
                reading = loop.create_task(anext(batches, None), name="next-events")
                try:
                    while not (await asyncio.wait({reading}, timeout=self._limits.stream_ping_seconds))[0]:
                        yield _PING
                finally:
                    if not reading.done():
                        reading.cancel()
                        await asyncio.gather(reading, return_exceptions=True)
                batch = reading.result()
                if batch is None:
                    return
                yield b"".join(map(_server_sent, batch))

    async def _send(self, send: Send, body: bytes, *, more: bool) -> None:
        async with asyncio.timeout(self._limits.stream_write_seconds):
            await send({"type": "http.response.body", "body": body, "more_body": more})


async def _end_on_disconnect(receive: Receive, connected: asyncio.Timeout) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    with suppress(RuntimeError):  # it has ended meanwhile
        connected.reschedule(0)  # a moment that has passed


def _server_sent(event: StoredEvent) -> bytes:
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (event.seq, event.type.encode(), event.json or dumps(event.data))
