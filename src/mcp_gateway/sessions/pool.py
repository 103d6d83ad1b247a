"""The pool of sessions: opened on first use, shared, closed when idle, replaced when their server has ended."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from mcp_gateway import deferred
from mcp_gateway.configuration.servers import ServerConfig
from mcp_gateway.configuration.variable_expansion import resolve
from mcp_gateway.sessions.backoff import RestartBackoff
from mcp_gateway.sessions.private_files import NO_PRIVATE_FILES, PrivateFiles
from starling.core.errors import ServerUnavailableError
from starling.core.settings.schema import Limits

if TYPE_CHECKING:
    from mcp_gateway.sessions.session import Session

_CLOSE_SECONDS = 6.0
_log = logging.getLogger(__name__)


type _Key = tuple[str, str]  # a server's name and the hash of its unresolved configuration


class SessionPool:
    """The sessions of every server.

    Calls share a session: MCP allows answers in any order, and a server may keep state in it. If the admin allows more
    (`max_sessions`), another one is opened when all are busy. An async context manager: its end closes all sessions.
    """

    def __init__(
        self, limits: Limits, environment: Mapping[str, str], private: PrivateFiles = NO_PRIVATE_FILES
    ) -> None:
        self._limits = limits
        self._environment = environment
        self._private = private
        self._open: dict[_Key, list[Session]] = {}
        self._idle: dict[Session, asyncio.TimerHandle] = {}
        self._retiring: set[Session] = set()  # closed when their current calls have ended
        self._backoff = RestartBackoff()
        self._tasks = asyncio.TaskGroup()
        self._owners: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for timer in self._idle.values():
            timer.cancel()
        for key in list(self._open):
            self._close(key)
        for session in self._retiring:
            session.stop()
        if self._owners:
            _, late = await asyncio.wait(self._owners, timeout=_CLOSE_SECONDS)
            for owner in late:
                owner.cancel()
        cancelled = isinstance(error, asyncio.CancelledError)  # any other error of the block is raised unchanged
        await self._tasks.__aexit__(*((kind, error, trace) if cancelled else (None, None, None)))

    @property
    def count(self) -> int:
        """The number of sessions that are open or being opened, without those of `open_new`."""
        return sum(session.usable for sessions in self._open.values() for session in sessions)

    @asynccontextmanager
    async def use(self, server: str, config: ServerConfig) -> "AsyncGenerator[Session]":
        """Yield a session for one call. Raises ServerUnavailableError if none can be opened."""
        session = self._pick(server, config)
        self._forget_idle(session)
        session.calls += 1
        try:
            yield session
        finally:
            session.calls -= 1
            if not session.calls:
                self._on_idle((server, config.hash), session)

    def warm(self, server: str, config: ServerConfig) -> "Session | None":
        """Begin to open a session unless one is open, and return it. A failure is raised by the first call."""
        try:
            session = self._pick(server, config)
        except ServerUnavailableError as error:
            _log.info("no session opened in advance: %s", error)
            return None
        if not session.calls and session not in self._idle:
            self._start_idle_timer((server, config.hash), session)
        return session

    def open_new(self, server: str, config: ServerConfig) -> "Session":
        """Open a session that is not shared; the caller stops it."""
        resolved = resolve(server, config, self._environment)
        transport = deferred.transport().transport_for(server, resolved, self._private)
        seconds, spawn = self._limits.server_start_seconds, self._tasks.create_task
        session = deferred.session().Session(
            server, transport, seconds, spawn, resolved.mask, resolved.config.options.roots
        )
        owner = self._tasks.create_task(session.run(), name=f"mcp session {server}")
        self._owners.add(owner)
        owner.add_done_callback(self._owners.discard)
        owner.add_done_callback(lambda _: self._on_end((server, config.hash), session))
        return session

    def keep_only(self, configs: Mapping[str, str]) -> None:
        """Begin to close the sessions of all configurations but these, given by server as hashes.

        If the server has a new configuration, its sessions finish their current calls, unless it is removed later.
        """
        for key in self._open.keys() - configs.items():
            if key[0] in configs:
                self._retiring.update(session for session in self._open[key] if session.usable and session.calls)
                self._open[key] = [session for session in self._open[key] if session not in self._retiring]
            self._close(key)
        for session in [session for session in self._retiring if session.server not in configs]:
            self._retiring.discard(session)
            session.stop()

    def _close(self, key: _Key) -> None:
        for session in self._open.pop(key, []):
            session.stop()

    def _pick(self, server: str, config: ServerConfig) -> "Session":
        key = server, config.hash
        usable = [session for session in self._open.get(key, []) if session.usable]
        least = min(usable, key=lambda session: session.calls, default=None)
        if least is None or (least.calls and len(usable) < self._max_sessions(config)):
            self._backoff.check(key)
            self._make_room(server)
            least = self.open_new(server, config)
            usable.append(least)
        self._open[key] = usable
        return least

    def _make_room(self, server: str) -> None:
        """Close the session that has been idle for longest if there are as many as may be open."""
        if self.count < self._limits.server_sessions:
            return
        session = next(iter(self._idle), None)
        if session is None:
            raise ServerUnavailableError(
                server,
                f"{self._limits.server_sessions} sessions are in use in this process.",
                "Raise `limits.server_sessions`, or execute fewer runs at a time.",
            )
        self._forget_idle(session)
        session.stop()

    def _on_end(self, key: _Key, session: "Session") -> None:
        """Note how a session ended."""
        self._forget_idle(session)
        if session.failed_to_open:
            self._backoff.failed(key, session.unavailable())
        elif session.info is not None:
            self._backoff.opened(key)

    def _forget_idle(self, session: "Session") -> None:
        if (timer := self._idle.pop(session, None)) is not None:
            timer.cancel()

    def _max_sessions(self, config: ServerConfig) -> int:
        return min(config.options.max_sessions, self._limits.sessions_per_server)

    def _on_idle(self, key: _Key, session: "Session") -> None:
        if session in self._retiring:
            self._retiring.discard(session)
            session.stop()
        elif session.usable:
            self._start_idle_timer(key, session)

    def _start_idle_timer(self, key: _Key, session: "Session") -> None:
        loop = asyncio.get_running_loop()
        self._idle[session] = loop.call_later(self._limits.session_idle_seconds, self._expire, key, session)

    def _expire(self, key: _Key, session: "Session") -> None:
        self._idle.pop(session, None)
        session.stop()
        if key in self._open:
            self._open[key] = [other for other in self._open[key] if other is not session]
