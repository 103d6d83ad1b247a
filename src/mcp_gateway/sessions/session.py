"""One open session with one server."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

import anyio
import httpx
import mcp.types as wire
from mcp import ClientSession, McpError
from pydantic import AnyUrl, BaseModel, ConfigDict, Field, FileUrl, RootModel, ValidationError

from mcp_gateway.sessions.inbox import LIST_CHANGED, Inbox
from mcp_gateway.sessions.large_messages import LargeResult
from mcp_gateway.sessions.local_transport import LocalTransport
from mcp_gateway.sessions.messages import LOST, UNREACHED
from mcp_gateway.sessions.notices import CallNotices, SessionNotices
from mcp_gateway.sessions.transport import HttpTransport, ShimTransport, Transport
from starling.core.errors import ServerUnavailableError
from starling.core.tools import ToolCall

type _Result = LargeResult | Mapping[str, Any]
type Spawn = Callable[[Coroutine[Any, Any, None]], object]
type Mask = Callable[[str], str]

_CLIENT: Final = wire.Implementation(name="starling", version="1")
_log = logging.getLogger(__name__)
_NOT_FOUND: Final = 32600  # the SDK's error code for HTTP 404
_SEND_CANCEL_SECONDS = 1.0
_CANCEL_DELAY_SECONDS = 0.5  # before the cancellation is sent: most calls are answered within this time
_LATE_ANSWER_SECONDS = 30.0  # to wait for an answer after the cancellation; many servers send none


class NotProcessedError(ServerUnavailableError):
    """The server did not process the request: it no longer knows the session, or was not reached."""


class ServerMemoryError(ServerUnavailableError):
    """The server was ended because it used more memory than it may."""

    code = "memory_limit"


class _AnyResult(RootModel[dict[str, Any]]):
    pass


class ToolsPage(BaseModel):
    """One page of a server's tools, with unchanged definitions."""

    model_config = ConfigDict(extra="ignore")

    tools: list[dict[str, Any]]
    next_cursor: str | None = Field(default=None, alias="nextCursor")


class Session:
    """A session, opened and closed by `run` in one task; it can't be opened again.

    `start_seconds` bounds the time until the server has answered `initialize`; `spawn` starts tasks in the background;
    `mask` removes secrets from error messages. `roots` are told to a server that asks for them; without any it is
    refused at once, as where it asks for the answer of a model or of a person.
    """

    def __init__(
        self,
        server: str,
        transport: Transport,
        start_seconds: float,
        spawn: Spawn,
        mask: Mask,
        roots: Sequence[str] = (),
    ) -> None:
        self.server = server
        self.calls = 0  # in flight
        self.answered = 0  # to calls and reads of resources, errors included
        self.info: wire.InitializeResult | None = None
        self.on_tools_changed: Callable[[], None] = lambda: None  # called when the server says that its tools changed
        self._transport = transport
        self._notices = SessionNotices()
        self._inbox = Inbox(self._on_notification)
        self._client = partial(
            ClientSession,
            client_info=_CLIENT,
            list_roots_callback=partial(_roots, roots) if roots else None,
        )
        self._start_seconds = start_seconds
        self._spawn = spawn
        self._mask = mask
        self._session: ClientSession | None = None
        self._reason = ""
        self._opened = asyncio.Event()  # it is open, or opening failed
        self._stop = asyncio.Event()
        self._ended = asyncio.Event()
        self._pending: set[asyncio.Timeout] = set()
        self._ping: asyncio.Task[bool] | None = None
        self.failure: ServerMemoryError | None = None  # why the platform has ended its server

    @property
    def usable(self) -> bool:
        """Whether the session is open or being opened."""
        gone = isinstance(self._transport, ShimTransport) and self._transport.ended
        return not (gone or self._stop.is_set() or self._ended.is_set())

    @property
    def failed_to_open(self) -> bool:
        """Whether the session has ended before it was open, and not because of `stop`."""
        return self._ended.is_set() and self.info is None and not self._stop.is_set()

    @property
    def process_id(self) -> int | None:
        """The process below which all those of the server are, 0 while none runs; None for a remote server."""
        return self._transport.pid if isinstance(self._transport, ShimTransport) else None

    @property
    def silent_seconds(self) -> float:
        """How long nothing has come from the server; 0 until it is open."""
        return asyncio.get_running_loop().time() - self._inbox.heard_at if self._session is not None else 0.0

    @property
    def is_pinged(self) -> bool:
        """Whether an answer to a ping is awaited."""
        return self._ping is not None and not self._ping.done()

    async def answers(self, seconds: float) -> bool:
        """Return whether the server answers a ping in time; if it doesn't, the session is stopped.

        Concurrent callers share one ping, which goes on when they are cancelled.
        """
        if self._ping is None or self._ping.done():
            self._ping = asyncio.get_running_loop().create_task(self._answered(seconds), name=f"ping-{self.server}")
        return await asyncio.shield(self._ping)

    async def run(self) -> None:
        """Open the session, keep it open until `stop`, and close it. Errors of the server end it and are not raised."""
        try:
            async with self._transport.connect(self._inbox, self._client) as session:
                await self._keep_open(session)
        except Exception as error:  # noqa: BLE001 - an error of a server ends its session only
            self._reason = self._reason or _reason(error)
            _log.info("the session with MCP server %s ended: %s", self.server, self.unavailable().reason)
        finally:
            self._session = None
            self._ended.set()
            self._opened.set()
            self._end_pending()

    async def opened(self) -> ClientSession:
        """Wait until the session is open. Raises ServerUnavailableError with the known cause."""
        await self._opened.wait()
        if self._session is None:
            raise self.unavailable()
        return self._session

    async def call(
        self, call: ToolCall, arguments: dict[str, Any], meta: Mapping[str, str]
    ) -> wire.CallToolResult | LargeResult:
        """Call a tool and return the server's answer, unvalidated; `meta` is sent beside the arguments.

        What the server says meanwhile goes to `call.on_notice`.

        Raises ServerUnavailableError, McpError where the server refused, ValidationError if the answer is malformed.
        """
        notices = CallNotices(call, self._mask)
        token = self._notices.begin(notices)
        request_meta: dict[str, Any] = {**meta, **({"progressToken": token} if notices.wanted else {})}
        sent = wire.RequestParams.Meta(**request_meta) if request_meta else None
        params = wire.CallToolRequestParams(name=call.tool.own_name or call.tool.name, arguments=arguments, _meta=sent)
        try:
            result = await self._request(wire.CallToolRequest(params=params))
        finally:
            self._notices.end(token)
        return result if isinstance(result, LargeResult) else wire.CallToolResult.model_validate(result)

    async def read_resource(self, uri: str) -> wire.ReadResourceResult | LargeResult:
        """Return the contents of a resource. Raises as `call` does."""
        params = wire.ReadResourceRequestParams(uri=AnyUrl(uri))
        result = await self._request(wire.ReadResourceRequest(params=params))
        return result if isinstance(result, LargeResult) else wire.ReadResourceResult.model_validate(result)

    async def page(self, cursor: str | None) -> ToolsPage:
        """Return one page of tools. Raises as `call` does."""
        params = wire.PaginatedRequestParams(cursor=cursor) if cursor else None
        return ToolsPage.model_validate(await self._request(wire.ListToolsRequest(params=params)))

    def fail(self, reason: str, remedy: str) -> ServerMemoryError:
        """Begin to close, because the server uses too much memory; pending requests raise ServerMemoryError."""
        self.failure = ServerMemoryError(self.server, reason, remedy)
        self.stop()
        return self.failure

    def stop(self) -> None:
        """Begin to close; pending requests raise ServerUnavailableError."""
        self._stop.set()
        self._end_pending()

    async def _answered(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._request(wire.PingRequest())
        except McpError:
            return True  # it refused, which is an answer
        except ServerUnavailableError:
            return False
        except TimeoutError:
            self._reason = f"it didn't answer a ping within {seconds:g} s"
            self.stop()
            return False
        return True

    def _on_notification(self, method: str, params: Mapping[str, Any]) -> None:
        """Take note of what the server says unasked."""
        if method == LIST_CHANGED:
            self.on_tools_changed()
        else:
            self._notices.take(method, params)

    async def _keep_open(self, session: ClientSession) -> None:
        limit = asyncio.timeout(self._start_seconds)
        try:
            async with limit:
                self._pending.add(limit)
                try:
                    self.info = await session.initialize()
                finally:
                    self._pending.discard(limit)
        except TimeoutError:
            self._reason = "" if self._stop.is_set() else f"it didn't answer within {self._start_seconds:g} s"
            self._opened.set()  # before its process has ended, which takes longer
        except (McpError, RuntimeError, ValidationError) as error:
            if not _is_closed(error):  # else the end of the session sets the reason
                self._reason = f"it couldn't be initialised: {_first_line(error)}"
        else:
            self._session = session
            self._opened.set()
            await self._stop.wait()

    async def _request(
        self, request: wire.CallToolRequest | wire.ListToolsRequest | wire.ReadResourceRequest | wire.PingRequest
    ) -> _Result:
        session = await self.opened()
        counts = not isinstance(request, wire.ListToolsRequest)
        limit = asyncio.timeout(None)  # no time limit of its own: it expires when the session ends
        try:
            async with limit:
                self._pending.add(limit)
                try:
                    result = await self._send(session, wire.ClientRequest(request))
                finally:
                    self._pending.discard(limit)
        except TimeoutError:
            raise await self._close_lost() from None
        except McpError as error:
            if (unserved := self._unserved(error)) is not None:
                raise unserved from None
            if not _is_closed(error):
                self.answered += counts
                raise
            lost = await self._close_lost()
            transport = self._transport
            if error.error.code == _NOT_FOUND and isinstance(transport, HttpTransport) and transport.session_id():
                raise NotProcessedError(lost.server, lost.reason, lost.remedy) from None
            raise lost from None
        self.answered += counts
        return result

    def _unserved(self, error: McpError) -> ServerUnavailableError | None:
        """Return the error of a request that the service behind a local transport didn't answer, None for others."""
        if not isinstance(self._transport, LocalTransport) or error.error.code not in (LOST, UNREACHED):
            return None
        kind = NotProcessedError if error.error.code == UNREACHED else ServerUnavailableError
        return kind(self.server, f"{self._mask(error.error.message)}.", self._transport.remedy)

    async def _send(self, session: ClientSession, request: wire.ClientRequest) -> _Result:
        """Send a request in a separate task, which is not cancelled while an answer may arrive.

        In the SDK, an answer to a cancelled `send_request` ends the whole session.
        """
        number = 0

        async def send() -> _Result:
            nonlocal number
            number = session._request_id  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - the SDK has no public accessor
            return self._inbox.whole((await session.send_request(request, _AnyResult)).root)

        sending = asyncio.get_running_loop().create_task(send(), name=f"ask-{self.server}")
        try:
            return await asyncio.shield(sending)
        except asyncio.CancelledError:
            self._spawn(self._cancel_request(session, sending, lambda: number))
            raise
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            raise await self._close_lost() from None

    async def _cancel_request[Answer](
        self, session: ClientSession, sending: asyncio.Task[Answer], number: Callable[[], int]
    ) -> None:
        """Send a cancellation to the server unless it answers within `_CANCEL_DELAY_SECONDS`.

        A cancellation that arrives while they answer makes some servers end the whole session. The end of the session
        ends the request.
        """
        await asyncio.wait({sending}, timeout=_CANCEL_DELAY_SECONDS)
        if not sending.done():
            params = wire.CancelledNotificationParams(requestId=number(), reason="no longer needed")
            notification = wire.ClientNotification(wire.CancelledNotification(params=params))
            with suppress(TimeoutError, anyio.ClosedResourceError, anyio.BrokenResourceError):
                async with asyncio.timeout(_SEND_CANCEL_SECONDS):
                    await session.send_notification(notification)
            ended = asyncio.get_running_loop().create_task(self._ended.wait())
            await asyncio.wait({sending, ended}, timeout=_LATE_ANSWER_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)

    async def _close_lost(self) -> ServerUnavailableError:
        self.stop()
        await self._ended.wait()
        return self.unavailable()

    def _end_pending(self) -> None:
        now = asyncio.get_running_loop().time()
        for limit in self._pending:
            if not limit.expired():
                limit.reschedule(now)

    def unavailable(self) -> ServerUnavailableError:
        """Return the error with the known reason for the end of the session."""
        if self.failure is not None:
            return self.failure
        known = self._transport.end_reason() if isinstance(self._transport, ShimTransport) else ""
        reason = "; ".join(filter(None, (self._reason, known))) or "the session was closed"
        return ServerUnavailableError(self.server, f"{self._mask(reason)}.", self._transport.remedy)


async def _roots(uris: Sequence[str], context: object) -> wire.ListRootsResult:
    """Answer a server that asks for its roots."""
    del context
    return wire.ListRootsResult(roots=[wire.Root(uri=FileUrl(uri)) for uri in uris])


def _is_closed(error: Exception) -> bool:
    return isinstance(error, McpError) and error.error.code in (wire.CONNECTION_CLOSED, _NOT_FOUND)


def _reason(error: Exception) -> str:
    """Return the error in one line, without addresses: they may contain keys."""
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
            return ""  # the end of a process: the transport knows the reason
        case _:
            return _first_line(error)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
