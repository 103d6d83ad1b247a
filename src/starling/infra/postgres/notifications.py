"""NOTIFY for a whole process: one connection listens on every channel that anything in the process follows."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection, Notify, OperationalError
from psycopg.sql import SQL, Identifier

from starling.core.background_tasks import in_background
from starling.core.errors import DatabaseUnavailableError
from starling.core.outages import Outage
from starling.infra.postgres.availability import postgres_outage
from starling.infra.postgres.engine import ConnectionLimits, connected

_RECONNECT_SECONDS: Final = 1.0
_LIMITS: Final = ConnectionLimits(connect_seconds=10)
_PEERS_SECONDS: Final = 10.0  # between two counts of the other processes that listen
_PEERS: Final = "starling_peers"  # each process notifies it when it begins to listen

# Each listening connection holds this advisory lock (shared), so that others can count them; Postgres releases it with
# the connection, however its process ends.
_ANNOUNCE: Final = f"SELECT pg_advisory_lock_shared(1400140146, 1), pg_notify('{_PEERS}', '')"
_COUNT_PEERS: Final = """
SELECT count(*) FROM pg_locks
WHERE locktype = 'advisory' AND classid = 1400140146 AND objid = 1 AND objsubid = 2 AND pid <> pg_backend_pid()
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""

_PART: Final = "notifications"  # of an outage


@dataclass(frozen=True, slots=True, eq=False)
class _Subscription:
    on_notice: Callable[[str], None]
    on_listening: Callable[[], None]


class NotificationHub:
    """Passes notifications on to the subscribers of this process. Made by `open_hub`."""

    def __init__(self, url: str, outage: Outage | None = None) -> None:
        self._url = url
        self._outage = outage or postgres_outage()
        self._subscriptions: defaultdict[str, set[_Subscription]] = defaultdict(set)
        self._listening: set[str] = set()
        self._wake = asyncio.Event()
        self.has_peers = True  # whether another process may be listening on the same database
        self.peers = 0  # other processes that listened on the same database when they were last counted
        self._own_pid = 0  # of the server's process for our connection
        self._announced = False  # whether another process has begun to listen since the last count began

    @contextmanager
    def subscribed(
        self, channel: str, on_notice: Callable[[str], None], on_listening: Callable[[], None]
    ) -> Generator[None]:
        """Call `on_notice` with the payload of each notification on `channel` while the context lasts.

        `on_listening` is called whenever listening begins, also after a lost connection: notifications may have been
        missed before.
        """
        subscription = _Subscription(on_notice, on_listening)
        self._subscriptions[channel].add(subscription)
        if channel in self._listening:
            on_listening()
        self._wake.set()
        try:
            yield
        finally:
            self._subscriptions[channel].discard(subscription)

    async def notices(self, channel: str, *, at_least_every: float) -> AsyncGenerator[bool]:
        """Yield True after notifications on `channel` and whenever listening begins, False after so many seconds."""
        noticed = asyncio.Event()
        with self.subscribed(channel, lambda _: noticed.set(), noticed.set):
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(at_least_every):
                        await noticed.wait()
                was_noticed = noticed.is_set()
                noticed.clear()
                yield was_noticed

    async def listen(self) -> None:
        """Listen until cancelled. A lost connection is opened again: at once the first time, then every second."""
        while True:
            try:
                async with connected(self._url, _LIMITS, "starling-listen") as connection:
                    await self._listen(connection)
            except (DatabaseUnavailableError, psycopg.Error) as error:  # also a replica's, which refuses LISTEN
                self._outage.failed(error, _PART)
            self.has_peers = True
            if not self._listening:
                await asyncio.sleep(_RECONNECT_SECONDS)
            self._listening.clear()

    async def _listen(self, connection: AsyncConnection[Any]) -> None:
        """Listen until the connection is lost: then OperationalError is raised."""
        connection.add_notify_handler(self._receive)
        self._own_pid = connection.info.backend_pid
        await connection.execute(SQL("LISTEN {}").format(Identifier(_PEERS)))
        await connection.execute(_ANNOUNCE.encode())
        self._outage.recovered(_PART)
        loop = asyncio.get_running_loop()
        count_at = loop.time()
        while True:
            self._wake.clear()
            for channel in set(self._subscriptions) - self._listening:
                await connection.execute(SQL("LISTEN {}").format(Identifier(channel)))
                self._listening.add(channel)
                for subscription in tuple(self._subscriptions[channel]):
                    subscription.on_listening()
            if loop.time() >= count_at:
                self._announced = False
                row = await (await connection.execute(_COUNT_PEERS.encode())).fetchone()
                self.peers = row[0] if row else 0
                self.has_peers = self.peers > 0 or self._announced
                count_at = loop.time() + _PEERS_SECONDS
            with self._reading(connection) as lost, contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(count_at):
                    await self._wake.wait()
            if lost:
                raise lost[0]

    @contextmanager
    def _reading(self, connection: AsyncConnection[Any]) -> Generator[list[OperationalError]]:
        """Receive notifications while the context lasts, without polling; yield a list that gets a connection error."""
        loop, pgconn = asyncio.get_running_loop(), connection.pgconn
        lost: list[OperationalError] = []

        def read() -> None:
            try:
                pgconn.consume_input()
            except OperationalError as error:
                lost.append(error)
                loop.remove_reader(descriptor)
                self._wake.set()
            while notice := pgconn.notifies():
                self._receive(Notify(notice.relname.decode(), notice.extra.decode(), notice.be_pid))

        descriptor = connection.fileno()
        loop.add_reader(descriptor, read)
        try:
            read()  # notifications received with the results of statements
            yield lost
        finally:
            if not lost:  # else libpq has closed the descriptor, and another connection may have it by now
                loop.remove_reader(descriptor)

    def _receive(self, notice: Notify) -> None:
        if notice.channel == _PEERS and notice.pid != self._own_pid:
            self._announced = self.has_peers = True
        for subscription in tuple(self._subscriptions.get(notice.channel, ())):
            subscription.on_notice(notice.payload)


@asynccontextmanager
async def open_hub(url: str, outage: Outage | None = None) -> AsyncGenerator[NotificationHub]:
    """Listen for as long as the context lasts. `url` must reach Postgres itself, not a transaction pooler."""
    hub = NotificationHub(url, outage)
    async with in_background(hub.listen(), "listen-for-notifications"):
        yield hub
