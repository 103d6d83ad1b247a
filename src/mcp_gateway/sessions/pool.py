"""The pool of sessions: opened on first use, shared, closed when idle, replaced when their server has ended."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Self
from weakref import WeakSet

from mcp_gateway.configuration.servers import ServerConfig
from mcp_gateway.configuration.variable_expansion import resolve
from mcp_gateway.sessions.breakers import Key, ServerBreakers
from mcp_gateway.sessions.checked_connections import CheckedConnections
from mcp_gateway.sessions.isolation import NO_PRIVATE_FILES, PrivateFiles
from mcp_gateway.sessions.server_memory import MemorySweep
from mcp_gateway.sessions.session import Session
from mcp_gateway.sessions.transport import transport_for
from starling.core.errors import ServerUnavailableError
from starling.core.settings.schema import Limits

_CLOSE_SECONDS = 6.0
_PING_ANSWER_SECONDS = 5.0
_PING_AFTER_SECONDS: Final = 30.0  # a session that was silent for longer is pinged before use
_log = logging.getLogger(__name__)


class SessionPool:
    """The sessions of every server.

    Calls share a session: MCP allows answers in any order, and a server may keep state in it. If the admin allows more
    (`max_sessions`), another one is opened when all are busy. An async context manager: its end closes all sessions.
    `breakers` may be shared with what shows their state; `checked` is how servers that came over HTTP are connected to.
    """

    def __init__(
        self,
        limits: Limits,
        environment: Mapping[str, str],
        checked: CheckedConnections,
        private: PrivateFiles = NO_PRIVATE_FILES,
        breakers: ServerBreakers | None = None,
    ) -> None:
        self._limits, self.start_seconds = limits, limits.server_start_seconds
        self._environment = environment
        self._private = private
        self._checked = checked
        self._open: dict[Key, list[Session]] = {}
        self._idle: dict[Session, asyncio.TimerHandle] = {}
        self._retiring: set[Session] = set()  # closed when their current calls have ended
        self.breakers = breakers or ServerBreakers()
        self._failed: WeakSet[Session] = WeakSet()  # whose failure is counted
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: dict[Session, Key] = {}
        self._memory = MemorySweep(limits, self._with_process, self._close_idle_process, self._fail, self._spawn)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all sessions; those that are still open after some seconds are cancelled."""
        self._memory.stop()
        for timer in self._idle.values():
            timer.cancel()
        for key in list(self._open):
            self._close(key)
        for session in self._retiring:
            session.stop()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_CLOSE_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    @property
    def count(self) -> int:
        """The number of sessions that are open or being opened, without those of `open_new`."""
        return sum(session.usable for sessions in self._open.values() for session in sessions)

    @asynccontextmanager
    async def use(self, server: str, config: ServerConfig) -> AsyncGenerator[Session]:
        """Yield a session for one call. One that was silent for long is pinged first, and replaced without an answer.

        Raises ServerUnavailableError if none can be opened, or none is to be tried now. See `ServerBreakers`.
        """
        key = server, config.hash
        with self.breakers.attempt(key):
            is_found = False
            while not is_found:
                session = self._pick(server, config)
                self._forget_idle(session)
                self._memory.begin()
                session.calls += 1
                answered = session.answered
                try:
                    # others' calls may keep a server from answering a ping
                    is_fresh = session.silent_seconds < _PING_AFTER_SECONDS
                    is_found = is_fresh or (session.calls > 1 and not session.is_pinged)
                    is_found = is_found or await session.answers(_PING_ANSWER_SECONDS)
                    if is_found:
                        yield session
                except ServerUnavailableError as error:
                    self._count_failure(key, session, error)
                    raise
                finally:
                    if session.answered > answered:
                        self.breakers.answered(key)
                    session.calls -= 1
                    if not session.calls and session in self._retiring:
                        self._retiring.discard(session)
                        session.stop()
                    elif not session.calls and session.usable:
                        self._start_idle_timer(key, session)

    def warm(self, server: str, config: ServerConfig) -> Session | None:
        """Begin to open a session unless one is open, and return it. A failure is raised by the first call."""
        try:
            self.breakers.check((server, config.hash))
            session = self._pick(server, config)
        except ServerUnavailableError as error:
            _log.info("no session opened in advance: %s", error)
            return None
        if not session.calls and session not in self._idle:
            self._start_idle_timer((server, config.hash), session)
        return session

    def _with_process(self) -> Sequence[Session]:
        return [session for session in self._running if session.process_id is not None]

    def _close_idle_process(self) -> Session | None:
        return self._close_idle(session for session in self._idle if session.process_id)

    def _fail(self, session: Session, reason: str, remedy: str) -> None:
        """Begin to close a session whose server uses too much memory; its next start waits."""
        if (key := self._running.get(session)) is not None:  # else it has ended meanwhile
            self._count_failure(key, session, session.fail(reason, remedy), is_costly=True)

    def open_new(self, server: str, config: ServerConfig, seconds: float | None = None) -> Session:
        """Open a session that is not shared, within `start_seconds` unless others are given; the caller stops it."""
        resolved = resolve(server, config, self._environment)
        transport = transport_for(server, resolved, self._private, self._checked, self._limits.tool_call_seconds)
        seconds, roots = seconds or self.start_seconds, resolved.config.options.roots
        session = Session(server, transport, seconds, self._spawn, resolved.mask, roots)
        self._running[session] = server, config.hash
        self._memory.begin()
        owner = self._spawn(session.run())
        owner.set_name(f"mcp session {server}")
        owner.add_done_callback(lambda _: self._on_end((server, config.hash), session))
        return session

    def keep_only(self, configs: Mapping[str, str]) -> None:
        """Begin to close the sessions of all configurations but these, given by server as hashes.

        If the server has a new configuration, its sessions finish their current calls, unless it is removed later.
        """
        self.breakers.keep_only(configs)
        for key in self._open.keys() - configs.items():
            if key[0] in configs:
                self._retiring.update(session for session in self._open[key] if session.usable and session.calls)
                self._open[key] = [session for session in self._open[key] if session not in self._retiring]
            self._close(key)
        for session in [session for session in self._retiring if session.server not in configs]:
            self._retiring.discard(session)
            session.stop()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _close(self, key: Key) -> None:
        for session in self._open.pop(key, []):
            session.stop()

    def _pick(self, server: str, config: ServerConfig) -> Session:
        key = server, config.hash
        usable = [session for session in self._open.get(key, []) if session.usable]
        least = min(usable, key=lambda session: session.calls, default=None)
        most = min(config.options.max_sessions, self._limits.sessions_per_server)
        if least is None or (least.calls and len(usable) < most):
            self._make_room(server)
            least = self.open_new(server, config)
            usable.append(least)
        self._open[key] = usable
        return least

    def _make_room(self, server: str) -> None:
        """Close the session that has been idle for longest if there are as many as may be open, or use the memory."""
        if reason := self._memory.make_room():
            remedy = "Raise `limits.server_memory_bytes`, or execute fewer runs at a time."
            raise ServerUnavailableError(server, reason, remedy)
        if self.count >= self._limits.server_sessions and self._close_idle(self._idle) is None:
            raise ServerUnavailableError(
                server,
                f"{self._limits.server_sessions} sessions are in use in this process.",
                "Raise `limits.server_sessions`, or execute fewer runs at a time.",
            )

    def _close_idle(self, idle: Iterable[Session]) -> Session | None:
        """Begin to close the first of these sessions, which has been idle for longest, and return it."""
        session = next(iter(idle), None)
        if session is not None:
            self._forget_idle(session)
            session.stop()
        return session

    def _on_end(self, key: Key, session: Session) -> None:
        """Note how a session ended."""
        self._forget_idle(session)
        self._running.pop(session, None)
        if session.failed_to_open:
            self._count_failure(key, session, session.unavailable())

    def _count_failure(
        self, key: Key, session: Session, error: ServerUnavailableError, *, is_costly: bool = False
    ) -> None:
        """Count the failure of a session once, however many calls it ends."""
        if session not in self._failed or session.usable:  # a usable one failed at this call only
            self._failed.add(session)
            self.breakers.failed(key, error, is_costly=is_costly)

    def _forget_idle(self, session: Session) -> None:
        if (timer := self._idle.pop(session, None)) is not None:
            timer.cancel()

    def _start_idle_timer(self, key: Key, session: Session) -> None:
        loop = asyncio.get_running_loop()
        self._idle[session] = loop.call_later(self._limits.session_idle_seconds, self._expire, key, session)

    def _expire(self, key: Key, session: Session) -> None:
        self._idle.pop(session, None)
        session.stop()
        if key in self._open:
            self._open[key] = [other for other in self._open[key] if other is not session]
