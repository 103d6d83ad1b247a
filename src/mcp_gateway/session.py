"""One open session with one server."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final, cast

import anyio
import httpx
import mcp.types as wire
from mcp import ClientSession, McpError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mcp_gateway.transport import ShimTransport, Transport
from starling.core.errors import ServerUnavailableError

type Spawn = Callable[[Coroutine[Any, Any, None]], object]
type Mask = Callable[[str], str]

_log = logging.getLogger(__name__)
_NOT_FOUND: Final = 32600  # what the SDK makes of HTTP 404
_CANCEL_SECONDS = 1.0
_WITHDRAW_SECONDS = 0.5  # most calls are answered before that
_LATE_SECONDS = 30.0  # that an answer may still come after the server was told; many send none then
_TO_START = "Start it by hand, or read its own log, to see more."
_TO_REACH = "Check its `url` and `headers`, or read its own log, to see more."


class SessionForgottenError(ServerUnavailableError):
    """The server answered that it doesn't know the session any more, and so didn't process the request."""


class ToolsPage(BaseModel):
    """One page of a server's tools, each exactly as it was listed."""

    model_config = ConfigDict(extra="ignore")

    tools: list[dict[str, Any]]
    next_cursor: str | None = Field(default=None, alias="nextCursor")


class Session:
    """A session from its opening to its end. `run` owns it, in one task; a session that ended can't be reopened.

    `start_seconds` bounds the time until the server has answered `initialize`; `spawn` starts tasks in the background;
    `mask` removes secrets from error messages.
    """

    def __init__(self, server: str, transport: Transport, start_seconds: float, spawn: Spawn, mask: Mask) -> None:
        self.server = server
        self.calls = 0  # in flight
        self.info: wire.InitializeResult | None = None
        self._transport = transport
        self._start_seconds = start_seconds
        self._spawn = spawn
        self._mask = mask
        self._session: ClientSession | None = None
        self._reason = ""
        self._decided = asyncio.Event()  # open, or failed to
        self._stop = asyncio.Event()
        self._ended = asyncio.Event()
        self._waiting: set[asyncio.Timeout] = set()

    @property
    def usable(self) -> bool:
        """Whether it is open or still opening."""
        gone = isinstance(self._transport, ShimTransport) and self._transport.ended
        return not (gone or self._stop.is_set() or self._ended.is_set())

    async def run(self) -> None:
        """Open the session, hold it until `stop`, and close it. Never raises for what the server does."""
        try:
            async with self._transport.connect() as session:
                await self._hold(session)
        except Exception as error:  # noqa: BLE001 - the edge of a session: whatever a server causes ends it and no more
            self._reason = self._reason or _reason(error)
            _log.info("the session with MCP server %s ended: %s", self.server, self._unavailable().reason)
        finally:
            self._end()

    async def opened(self) -> ClientSession:
        """Wait until the session is open. Raises ServerUnavailableError with what is known about the cause."""
        await self._decided.wait()
        if self._session is None:
            raise self._unavailable()
        return self._session

    async def call(self, tool: str, arguments: dict[str, Any], meta: Mapping[str, str]) -> wire.CallToolResult:
        """Call a tool and return what the server answered, unchecked; `meta` goes beside the arguments.

        Raises ServerUnavailableError, McpError where the server refused, ValidationError where the answer isn't one.
        """
        beside = wire.RequestParams.Meta(**meta) if meta else None
        params = wire.CallToolRequestParams(name=tool, arguments=arguments, _meta=beside)
        return await self._request(wire.CallToolRequest(params=params), wire.CallToolResult)

    async def page(self, cursor: str | None) -> ToolsPage:
        """Return one page of tools. Raises as `call` does."""
        params = wire.PaginatedRequestParams(cursor=cursor) if cursor else None
        return await self._request(wire.ListToolsRequest(params=params), ToolsPage)

    def stop(self) -> None:
        """Begin to close; whoever waits for an answer gets ServerUnavailableError."""
        self._stop.set()
        self._release()

    async def closed(self) -> None:
        """Wait until nothing of the session is left."""
        await self._ended.wait()

    async def _hold(self, session: ClientSession) -> None:
        limit = asyncio.timeout(self._start_seconds)
        try:
            async with limit:
                self._waiting.add(limit)
                try:
                    self.info = await session.initialize()
                finally:
                    self._waiting.discard(limit)
        except TimeoutError:
            self._reason = "" if self._stop.is_set() else f"it didn't answer within {self._start_seconds:g} s"
            self._decided.set()  # its process needs some time more to end
        except (McpError, RuntimeError, ValidationError) as error:
            if not _is_closed(error):  # else its end will tell why
                self._reason = f"it couldn't be initialised: {_first_line(error)}"
        else:
            self._session = session
            self._decided.set()
            await self._stop.wait()

    async def _request[Answer: BaseModel](
        self, request: wire.CallToolRequest | wire.ListToolsRequest, answer: type[Answer]
    ) -> Answer:
        session = await self.opened()
        limit = asyncio.timeout(None)  # no time limit of its own: it expires when the session ends
        try:
            async with limit:
                self._waiting.add(limit)
                try:
                    return await self._send(session, wire.ClientRequest(request), answer)
                finally:
                    self._waiting.discard(limit)
        except TimeoutError:
            raise await self._lost() from None
        except McpError as error:
            if not _is_closed(error):
                raise
            lost = await self._lost()
            if error.error.code == _NOT_FOUND and self._transport.issued_session_id:
                raise SessionForgottenError(lost.server, lost.reason, lost.remedy) from None
            raise lost from None

    async def _send[Answer: BaseModel](
        self, session: ClientSession, request: wire.ClientRequest, answer: type[Answer]
    ) -> Answer:
        """Send a request in a task of its own, which nobody cancels while an answer may come.

        An answer that meets a cancelled `send_request` in the SDK ends the whole session.
        """
        number = 0

        async def send() -> Answer:
            nonlocal number
            number = session._request_id  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - else it can't be named
            return await session.send_request(request, answer)

        sending = asyncio.get_running_loop().create_task(send(), name=f"ask-{self.server}")
        try:
            return await asyncio.shield(sending)
        except asyncio.CancelledError:
            self._spawn(self._withdraw(session, sending, lambda: number))
            raise
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            raise await self._lost() from None

    async def _withdraw[Answer](
        self, session: ClientSession, sending: asyncio.Task[Answer], number: Callable[[], int]
    ) -> None:
        """Tell the server that nobody waits for an answer any more, unless it has given it within a moment.

        Hearing of it just as they answer, servers may end the whole session.
        """
        ended = asyncio.get_running_loop().create_task(self._ended.wait(), name=f"end-{self.server}")
        for seconds in (_WITHDRAW_SECONDS, _LATE_SECONDS):
            await asyncio.wait({sending, ended}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if sending.done() or ended.done():
                break
            if seconds == _WITHDRAW_SECONDS:
                await self._notify(session, number())
        ended.cancel()
        sending.cancel()
        await asyncio.gather(sending, ended, return_exceptions=True)

    async def _notify(self, session: ClientSession, number: int) -> None:
        params = wire.CancelledNotificationParams(requestId=number, reason="no longer needed")
        notification = wire.ClientNotification(wire.CancelledNotification(params=params))
        with suppress(TimeoutError, anyio.ClosedResourceError, anyio.BrokenResourceError):
            async with asyncio.timeout(_CANCEL_SECONDS):
                await session.send_notification(notification)

    async def _lost(self) -> ServerUnavailableError:
        self.stop()
        await self._ended.wait()
        return self._unavailable()

    def _end(self) -> None:
        self._session = None
        self._ended.set()
        self._decided.set()
        self._release()

    def _release(self) -> None:
        now = asyncio.get_running_loop().time()
        for limit in self._waiting:
            if not limit.expired():
                limit.reschedule(now)

    def _unavailable(self) -> ServerUnavailableError:
        if isinstance(self._transport, ShimTransport):
            known, remedy = self._transport.why(), _TO_START
        else:
            known, remedy = "", _TO_REACH
        reason = "; ".join(filter(None, (self._reason, known))) or "the session was closed"
        return ServerUnavailableError(self.server, f"{self._mask(reason)}.", remedy)


def _is_closed(error: Exception) -> bool:
    return isinstance(error, McpError) and error.error.code in (wire.CONNECTION_CLOSED, _NOT_FOUND)


def _reason(error: Exception) -> str:
    """Return what went wrong, in a line. Addresses are left out: they may carry keys."""
    if isinstance(error, ExceptionGroup):
        group = cast("ExceptionGroup[Exception]", error)
        return _reason(group.exceptions[0])
    match error:
        case httpx.HTTPStatusError():
            return f"it answered with HTTP {error.response.status_code} {error.response.reason_phrase}"
        case httpx.TimeoutException():
            return "it didn't answer in time"
        case httpx.TransportError():
            return f"it can't be reached ({_first_line(error)})"
        case ConnectionError() if not error.args:
            return ""  # the end of a process, which explains itself
        case _:
            return _first_line(error)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
