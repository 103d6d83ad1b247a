"""Transports to MCP servers: a process under the shim, streamable HTTP, or server-sent events."""

import asyncio
import os
import re
import shutil
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from ssl import SSLContext
from typing import Any, Final

import anyio
import anyio.lowlevel
import httpx
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import ClientSession
from mcp.client.sse import sse_client
from mcp.client.streamable_http import GetSessionIdCallback, streamable_http_client
from mcp.shared.message import SessionMessage

from mcp_gateway.configuration.address_rules import REMEDY
from mcp_gateway.configuration.servers import CheckedServer, InProcessServer, RemoteServer, StdioServer
from mcp_gateway.configuration.variable_expansion import Resolved
from mcp_gateway.sessions import shim
from mcp_gateway.sessions.checked_connections import CheckedConnections, CheckedTransport
from mcp_gateway.sessions.execution_service import open_execution_service
from mcp_gateway.sessions.http_messages import InboxClient
from mcp_gateway.sessions.inbox import TOO_LONG, Inbox
from mcp_gateway.sessions.isolation import NO_PRIVATE_FILES, PrivateFiles, paths_to_hide, user_of
from mcp_gateway.sessions.leftover_processes import MARK
from mcp_gateway.sessions.local_transport import LocalTransport, OpenSession
from mcp_gateway.sessions.messages import MESSAGE_BYTES, UnreadableError, looks_like_message
from mcp_gateway.sessions.python_servers import REMEDY as LOAD_REMEDY
from mcp_gateway.sessions.python_servers import open_python_server
from starling.core.errors import ServerUnavailableError
from starling.core.ids import process_name
from starling.core.json import storable_text

_CHUNK: Final = 2**16  # bytes
_MAX_INVALID_LINES = 10_000  # in a row before the session fails
_STDERR_LINES = 20
_STDERR_LINE_CHARS = 500
_REACH_REMEDY: Final = "Check its `url` and `headers`, or read its own log, to see more."
_CHECKED_REMEDY: Final = (
    f"{_REACH_REMEDY} If its address is not public, list it in STARLING_ALLOWED_ADDRESSES on the platform's machine."
)
_HTTP_LIMITS: Final = httpx.Timeout(30.0, read=300.0)  # the SDK's: a server may hold a stream open
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE: Final = re.compile(r"(?:[!-~](?:[\t -~]*[!-~])?)?")
_EXIT_SECONDS = 4.0  # the shim needs less to end all processes

type Inbound = MemoryObjectSendStream[SessionMessage | Exception]
type Outbound = MemoryObjectReceiveStream[SessionMessage]


@cache
def _tls_context() -> SSLContext:
    """Return the TLS settings of all HTTP sessions; reading the certificates takes 20 ms of processor time."""
    return httpx.create_ssl_context()


def _client[Client: httpx.AsyncClient](
    make: Callable[..., Client], checked: CheckedConnections | None, **options: Any
) -> Client:
    tls = _tls_context()
    if checked is None:
        return make(verify=tls, **options)
    return make(transport=CheckedTransport(checked, tls), trust_env=False, **options)


@dataclass(slots=True)
class HttpTransport:
    """MCP's streamable HTTP. `session_id` returns the id that the server has issued, None where it has none.

    Connections are `checked` where the server came over HTTP.
    """

    url: str
    headers: dict[str, str]
    checked: CheckedConnections | None
    remedy: str
    session_id: GetSessionIdCallback = field(default=lambda: None, init=False)

    @asynccontextmanager
    async def connect(self, inbox: Inbox, open_session: OpenSession) -> AsyncGenerator[ClientSession]:
        """Yield a session that is not initialised; close the connection at the end.

        `inbox` reads what the server sends, before the session that `open_session` returns.
        """
        async with (
            _client(partial(InboxClient, inbox), self.checked, headers=self.headers, timeout=_HTTP_LIMITS) as client,
            streamable_http_client(self.url, http_client=client) as (read, write, self.session_id),
            open_session(read, write) as session,
        ):
            yield session


@dataclass(frozen=True, slots=True)
class SseTransport:
    """MCP's older transport: requests over HTTP, answers over one stream of server-sent events."""

    url: str
    headers: dict[str, str]
    checked: CheckedConnections | None
    remedy: str

    @asynccontextmanager
    async def connect(self, inbox: Inbox, open_session: OpenSession) -> AsyncGenerator[ClientSession]:
        def client(
            headers: dict[str, str] | None = None, timeout: httpx.Timeout | None = None, auth: httpx.Auth | None = None
        ) -> httpx.AsyncClient:
            make = partial(InboxClient, inbox)
            return _client(make, self.checked, headers=headers, timeout=timeout, auth=auth)

        async with (
            sse_client(self.url, self.headers, httpx_client_factory=client) as (read, write),
            open_session(read, write) as session,
        ):
            yield session


class ShimTransport:
    """A server process under the shim, with one message a line.

    The SDK's stdio transport doesn't keep stderr, which explains failures, and logs a traceback for each line that
    isn't a message.
    """

    remedy: Final = "Start it by hand, or read its own log, to see more."

    def __init__(self, name: str, server: StdioServer, private: PrivateFiles = NO_PRIVATE_FILES) -> None:
        self._name, self._private = name, private
        self.server = server
        self.stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        self.garbage = 0  # lines on stdout since the last message that are no messages
        self.ended = False  # the end of stdout was reached
        self.exit_code: int | None = None
        self.pid = 0  # of the shim, while it runs

    @asynccontextmanager
    async def connect(self, inbox: Inbox, open_session: OpenSession) -> AsyncGenerator[ClientSession]:
        """Start the process; yield a session that is not initialised; end the process and its descendants.

        Raises OSError if the process can't be started.
        """
        process = await self._start()
        self.pid = process.pid
        inbound, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, outbound = anyio.create_memory_object_stream[SessionMessage](0)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._receive, process, inbox, inbound)
                tasks.start_soon(self._send, process, inbox, outbound)
                tasks.start_soon(self._keep_stderr, process)
                async with open_session(read, write) as session:
                    yield session
                tasks.cancel_scope.cancel()
        finally:
            for stream in (inbound, read, write, outbound):
                stream.close()
            with anyio.CancelScope(shield=True):
                await self._end(process)
                self.pid = 0

    def end_reason(self) -> str:
        """Return the known reason for the end of the session, as part of an error message."""
        parts = [f"it ended with exit code {self.exit_code}"] if self.exit_code is not None else []
        parts += [f"it wrote {self.garbage} lines to stdout that are not MCP messages"] if self.garbage else []
        parts += [f"its last line on stderr: {self.stderr[-1]}"] if self.stderr else []
        return "; ".join(parts)

    async def _start(self) -> Process:
        command = (sys.executable, "-I", "-S", shim.__file__, str(os.getpid()), self.server.command, *self.server.args)
        user = user_of(self._private, self.server)
        env = user.environment(self.server) if user else dict(self.server.env)
        env[MARK] = f"{process_name()} {self._name}"
        if user:
            env[shim.USER] = ",".join(map(str, (user.uid, user.gid, *user.groups)))
        program = shutil.which(self.server.command, path=self.server.env.get("PATH")) or self.server.command
        folder = self.server.cwd or str(Path.cwd())
        used = (program, *self.server.args, *self.server.env.values(), folder)
        if hidden := paths_to_hide(self._private, used):
            env[shim.HIDDEN] = "\n".join(hidden)
        if self._private.read_only:
            env[shim.READ_ONLY] = "\n".join(map(os.path.realpath, self._private.read_only))
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=env,
            cwd=self.server.cwd,
            start_new_session=True,
        )

    async def _receive(self, process: Process, inbox: Inbox, inbound: Inbound) -> None:
        """Forward each message. Raises ConnectionError at the end of stdout, which ends the session."""
        assert process.stdout is not None
        async with aclosing(_lines(process.stdout)) as lines:
            async for line, is_whole in lines:
                await self._forward(line, inbox, inbound, is_whole=is_whole)
                if self.garbage > _MAX_INVALID_LINES:
                    break
        self.ended = True
        raise ConnectionError

    async def _forward(self, line: bytes, inbox: Inbox, inbound: Inbound, *, is_whole: bool) -> None:
        if line.isspace() or not line:
            return
        try:
            if not looks_like_message(line):
                raise UnreadableError("it is not a message")
            message = await inbox.take(line) if is_whole else inbox.refused(line, TOO_LONG)
        except UnreadableError:
            self.garbage += 1
            await anyio.lowlevel.checkpoint()  # so that a flood of lines doesn't block other tasks
            return
        self.garbage = 0
        if message is None:
            await anyio.lowlevel.checkpoint()
        else:
            await inbound.send(SessionMessage(message))

    async def _send(self, process: Process, inbox: Inbox, outbound: Outbound) -> None:
        assert process.stdin is not None
        with suppress(ConnectionError):  # the reader reports the end
            async for item in outbound:
                inbox.pending.sent(item.message)
                process.stdin.write(item.message.model_dump_json(by_alias=True, exclude_none=True).encode() + b"\n")
                await process.stdin.drain()

    async def _keep_stderr(self, process: Process) -> None:
        """Keep the last lines of stderr, truncated."""
        assert process.stderr is not None
        rest = b""
        while chunk := await process.stderr.read(_CHUNK):
            *lines, rest = (rest + chunk).rsplit(b"\n", _STDERR_LINES)  # earlier ones needn't be told apart
            lines = [line.rpartition(b"\n")[2] for line in lines]
            self.stderr.extend(text for line in lines if (text := _stderr_text(line)))
            rest = rest[:_STDERR_LINE_CHARS]
        if text := _stderr_text(rest):
            self.stderr.append(text)

    async def _end(self, process: Process) -> None:
        """Close stdin, read the rest and wait: asyncio reports its end only when its pipes are read to the end."""
        assert process.stdin is not None
        process.stdin.close()
        with anyio.move_on_after(_EXIT_SECONDS) as limit:
            await self._drain(process)
        if limit.cancelled_caught and process.returncode is None:
            process.kill()
            with anyio.move_on_after(_EXIT_SECONDS):
                await self._drain(process)
        self.exit_code = process.returncode

    async def _drain(self, process: Process) -> None:
        assert process.stdout is not None
        async with anyio.create_task_group() as readers:
            readers.start_soon(self._keep_stderr, process)
            while await process.stdout.read(65_536):
                pass
        await process.wait()


async def _lines(stream: asyncio.StreamReader) -> AsyncGenerator[tuple[bytes, bool]]:
    """Yield each line, and whether it is whole: of longer ones than a message may be the beginning comes at once."""
    buffer = bytearray()
    skipping = False
    while chunk := await stream.read(_CHUNK):
        looked = len(buffer)
        buffer += chunk
        while (end := buffer.find(b"\n", looked)) >= 0:
            if not skipping:
                yield bytes(buffer[:end]), True
            del buffer[: end + 1]
            looked, skipping = 0, False
        if len(buffer) > MESSAGE_BYTES and not skipping:
            yield bytes(buffer[:_CHUNK]), False
            skipping = True
        if skipping:
            buffer.clear()


def _stderr_text(line: bytes) -> str:
    return storable_text(line[:_STDERR_LINE_CHARS].decode(errors="replace")).strip()


type Transport = HttpTransport | SseTransport | ShimTransport | LocalTransport


def transport_for(
    server: str, resolved: Resolved, private: PrivateFiles, checked: CheckedConnections, call_seconds: float
) -> Transport:
    """Return the transport for a configuration. Raises ServerUnavailableError if it is unusable."""
    match config := resolved.config:
        case StdioServer():
            _check_command(server, config, resolved.mask)
            return ShimTransport(server, config, private)
        case InProcessServer():
            return LocalTransport(partial(open_python_server, server, config.entry_point), LOAD_REMEDY, apart=True)
        case RemoteServer():
            _check_address(server, config, resolved.mask)
            came_over_http = isinstance(config, CheckedServer)
            if came_over_http and (fault := checked.rules.url_fault(config.url)):
                raise ServerUnavailableError(server, f"{resolved.mask(fault)}.", REMEDY)
            connections, remedy = (checked, _CHECKED_REMEDY) if came_over_http else (None, _REACH_REMEDY)
            if config.type == "execution_service":
                client = partial(_client, httpx.AsyncClient, connections)
                service = partial(open_execution_service, config, call_seconds, client)
                return LocalTransport(service, remedy, apart=False)
            made = SseTransport if config.type == "sse" else HttpTransport
            return made(config.url, dict(config.headers), connections, remedy)


def _check_command(server: str, config: StdioServer, mask: Callable[[str], str]) -> None:
    if config.cwd is not None and not Path(config.cwd).is_dir():
        raise ServerUnavailableError(server, f"its folder {mask(config.cwd)} doesn't exist.", "Correct `cwd`.")
    command = Path(config.cwd or "") / config.command if os.sep in config.command else config.command
    if shutil.which(command, path=config.env.get("PATH")) is None:
        raise ServerUnavailableError(
            server,
            f"the command {mask(config.command)!r} was not found or can't be run.",
            "Install it, or give its whole path as `command`.",
        )


def _check_address(server: str, config: RemoteServer, mask: Callable[[str], str]) -> None:
    if not config.url.startswith(("http://", "https://")):
        raise ServerUnavailableError(server, f"{mask(config.url)!r} is not an HTTP address.", "Correct `url`.")
    for name, value in config.headers.items():  # what HTTP's client says of a wrong one quotes its value
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            reason = f"the header {name!r} has what no header can have: a line break, a space at an end, a character"
            raise ServerUnavailableError(server, f"{reason} that isn't ASCII.", "Correct `headers`.")
