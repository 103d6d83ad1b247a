"""Streams that would go on for ever end in order when their server closes; their readers come again elsewhere."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_STREAM = b"text/event-stream"


class Closing:
    """An application whose event streams can be brought to an end."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._closed = False
        self._streams: set[asyncio.Task[object]] = set()

    def close(self) -> None:
        """End every event stream, between two events."""
        self._closed = True
        for task in self._streams:
            task.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        task = asyncio.current_task()
        assert task is not None

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start" and _streams(message):
                self._streams.add(task)
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except asyncio.CancelledError:
            if not self._closed or task not in self._streams:
                raise
            task.uncancel()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._streams.discard(task)


def _streams(start: Message) -> bool:
    return any(
        name.lower() == b"content-type" and value.startswith(_STREAM) for name, value in start.get("headers", ())
    )
