"""The transport to an MCP server in this process: streams in memory, between two event loops or in one."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache
from threading import Thread
from typing import Any, Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import ClientSession
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCMessage, JSONRPCResponse

from mcp_gateway.sessions.inbox import Inbox
from mcp_gateway.sessions.messages import UnreadableError, unreadable

_CLOSE_SECONDS: Final = 2.0  # what runs in a server then is left to itself

type OpenServer = Callable[[], AbstractAsyncContextManager[Server[Any, Any]]]
type OpenSession = Callable[
    [MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]], ClientSession
]


@cache
def _server_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of all servers that run code of others, on a thread of its own: it may block there.

    There is one in a process: a FastMCP server object may be used by one loop only. The thread never ends.
    """
    loop = asyncio.new_event_loop()

    def run() -> None:
        while True:
            with suppress(BaseException):  # SystemExit of a task ends the loop, too
                loop.run_forever()

    Thread(target=run, name="servers in process", daemon=True).start()
    return loop


async def _on[Result](loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Result]) -> Result:
    """Return what comes of work on another event loop; cancelling this cancels it."""
    try:
        scheduled = asyncio.run_coroutine_threadsafe(work, loop)
    except RuntimeError:  # the loop was closed meanwhile
        work.close()
        raise
    return await asyncio.wrap_future(scheduled)


class _ServerSide:
    """The streams of a server, which only its own event loop uses."""

    def __init__(self) -> None:
        self.to_server, self._requests = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        self._answers, self._from_server = anyio.create_memory_object_stream[SessionMessage](0)

    async def serve(self, open_server: OpenServer, deliver: Callable[[bytes], Awaitable[None]]) -> None:
        """Run a server until it ends or this is cancelled, and deliver what it sends."""
        try:
            async with open_server() as server, anyio.create_task_group() as tasks:
                tasks.start_soon(self._pass_on, deliver)
                await server.run(self._requests, self._answers, server.create_initialization_options())
        finally:
            for stream in (self.to_server, self._requests, self._answers, self._from_server):
                stream.close()

    async def _pass_on(self, deliver: Callable[[bytes], Awaitable[None]]) -> None:
        async for item in self._from_server:
            await deliver(_written(item.message))


def _written(message: JSONRPCMessage) -> bytes:
    """Return a message as JSON; an answer that can't be written as JSON becomes an error of its request."""
    try:
        return message.model_dump_json(by_alias=True, exclude_none=True).encode()
    except ValueError as error:  # also of pydantic's writer
        if not isinstance(message.root, JSONRPCResponse):
            raise
        return unreadable(message.root.id, f"it can't be written as JSON: {error}").model_dump_json().encode()


@dataclass(frozen=True, slots=True)
class LocalTransport:
    """A server that `open_server` makes. `remedy` is what to do if it can't be used.

    `apart`: it runs on the thread of such servers, so that code that blocks doesn't block the platform.
    """

    open_server: OpenServer
    remedy: str
    apart: bool

    @asynccontextmanager
    async def connect(self, inbox: Inbox, open_session: OpenSession) -> AsyncGenerator[ClientSession]:
        """Yield a session that is not initialised; end the server. Raises what the server ended with."""
        own = asyncio.get_running_loop()
        loop = _server_loop() if self.apart else own
        inbound, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, outbound = anyio.create_memory_object_stream[SessionMessage](0)
        ended, server = asyncio.Event(), _ServerSide()

        async def take(raw: bytes) -> None:
            with suppress(UnreadableError):
                if (message := await inbox.take(raw)) is not None:
                    await inbound.send(SessionMessage(message))

        async def serve() -> None:
            try:
                await server.serve(self.open_server, lambda raw: _on(own, take(raw)))
            except BaseException as error:
                if isinstance(error, Exception | asyncio.CancelledError):
                    raise
                raise ConnectionError(f"it ended with {error!r}") from None  # SystemExit would end the platform
            finally:
                with suppress(RuntimeError):  # the platform's loop was closed meanwhile
                    own.call_soon_threadsafe(ended.set)

        async def watch() -> None:
            await _on(loop, serve())
            raise ConnectionError

        async def send() -> None:
            async for item in outbound:
                inbox.pending.sent(item.message)
                await _on(loop, server.to_server.send(item))

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watch)
                tasks.start_soon(send)
                async with open_session(read, write) as session:
                    yield session
                tasks.cancel_scope.cancel()
        finally:
            for stream in (inbound, read, write, outbound):
                stream.close()
            with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
                await ended.wait()
