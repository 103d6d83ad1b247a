"""Requests at shutdown: streams end between two events, requests that take too long are answered with 503."""

import asyncio
from contextlib import suppress
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from starling.app.http.openai_errors import is_for_openai
from starling.app.http.problems import EndableResponse
from starling.core.errors import DrainingError

_DRAINING: Final = DrainingError(
    "The request was not finished when this process had to stop.",
    "Send it again with the same Idempotency-Key, which cannot start a second run.",
)
_CUT_OFF_SECONDS = 1.0


class GracefulShutdown:
    """An application whose open requests can be ended."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._closed = False
        self._requests: set[_Request] = set()

    def close(self) -> None:
        """End every event stream, between two events."""
        self._closed = True
        for request in self._requests:
            if request.streams:
                request.task.cancel()

    async def cut_off(self) -> None:
        """Answer every request that has no response yet with 503."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CUT_OFF_SECONDS):
                await asyncio.gather(*(request.cut_off() for request in self._requests if not request.begun))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        task = asyncio.current_task()
        assert task is not None
        request = _Request(task, scope, receive, send)
        self._requests.add(request)
        try:
            await self._app(scope, receive, request.send)
        except asyncio.CancelledError:
            if not self._closed or (request.begun and not (request.streams or request.cut)):
                raise
            task.uncancel()
            if request.streams:
                await request.end(_DRAINING)
            elif not request.begun:  # it came after `cut_off`
                await request.cut_off()
        except Exception as error:
            if request.streams and is_for_openai(scope["path"]):
                await request.end(error)
            raise  # the server drops the connection of a stream that has no end
        finally:
            self._requests.discard(request)


class _Request(EndableResponse):
    def __init__(self, task: asyncio.Task[object], scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        self.task = task
        self.begun = self.cut = False

    async def send(self, message: Message) -> None:
        """Forward a message of the application; send nothing after `cut_off`."""
        if self.cut:
            return
        self.begun = True
        await super().send(message)

    async def cut_off(self) -> None:
        """Answer with 503."""
        self.begun = self.cut = True
        await self.end(_DRAINING)
