"""What a load costs: processor time, WAL, transactions, notifications, connections and stored bytes."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import psutil
import psycopg
from psycopg import AsyncConnection

from starling.infra.postgres.runs.broadcast import CHANNEL

_OWN_NAME = "load-test"
_LOOK_SECONDS = 0.25
_CHANNELS = (CHANNEL, "procrastinate_queue_v1#runs", "procrastinate_any_queue_v1")
_COUNTS = """
SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint, (SELECT wal_fpi FROM pg_stat_wal),
    (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()),
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint, pg_database_size(current_database())"""
_CONNECTIONS = f"""
SELECT coalesce(nullif(application_name, ''), '(no name)'), count(*) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND application_name <> '{_OWN_NAME}'
GROUP BY 1"""  # noqa: S608 - our own text


@dataclass(frozen=True, slots=True)
class DatabaseSample:
    """Totals of a database since it was made. `cpu_ms` is None where Postgres is no process of this machine."""

    wal_bytes: int
    full_page_images: int
    transactions: int  # Postgres counts them up to a second late
    write_transactions: int
    stored_bytes: int
    notifications: Mapping[str, int]
    cpu_ms: float | None


@dataclass(frozen=True, slots=True)
class DatabaseUse:
    """Costs of one run, and the most connections that were open at a time, by application."""

    cpu_ms: float | None
    wal_bytes: float
    full_page_images: float  # WAL depends on them, and they on how often Postgres makes a checkpoint
    transactions: float
    write_transactions: float
    stored_bytes: float  # with indexes, and dead rows that are not vacuumed yet
    notifications: Mapping[str, float]
    connections: Mapping[str, int]

    @classmethod
    def of(
        cls, before: DatabaseSample, after: DatabaseSample, runs: int, connections: Mapping[str, int]
    ) -> "DatabaseUse":
        """Divide what was used between two samples by the runs that ended between them, at least one."""
        runs = max(1, runs)
        cpu = None if before.cpu_ms is None or after.cpu_ms is None else (after.cpu_ms - before.cpu_ms) / runs
        return cls(
            cpu,
            (after.wal_bytes - before.wal_bytes) / runs,
            (after.full_page_images - before.full_page_images) / runs,
            (after.transactions - before.transactions) / runs,
            (after.write_transactions - before.write_transactions) / runs,
            (after.stored_bytes - before.stored_bytes) / runs,
            {name: (total - before.notifications.get(name, 0)) / runs for name, total in after.notifications.items()},
            connections,
        )


class DatabaseWatch:
    """Samples one database. Made by `watched`."""

    def __init__(self, connection: AsyncConnection, postmaster: psutil.Process | None) -> None:
        self.connections: Counter[str] = Counter()  # the most at a time, by application
        self.notifications: Counter[str] = Counter()
        self._connection = connection
        self._postmaster = postmaster
        self._asking = asyncio.Lock()
        self._asked = 0  # transactions of our own

    async def sample(self) -> DatabaseSample:
        """Return the totals until now."""
        async with self._asking:
            row = await (await self._connection.execute(_COUNTS)).fetchone()
            self._asked += 1
        assert row is not None
        wal, images, transactions, *others = row
        cpu = None if self._postmaster is None else postgres_cpu_ms(self._postmaster)
        counts = wal, images, transactions - self._asked, *others
        return DatabaseSample(*counts, notifications=dict(self.notifications), cpu_ms=cpu)

    async def look(self) -> None:
        """Count the connections again and again until cancelled."""
        while True:
            async with self._asking:
                rows = await (await self._connection.execute(_CONNECTIONS.encode())).fetchall()
                self._asked += 1
            self.connections |= Counter(dict(rows))  # the larger of each
            await asyncio.sleep(_LOOK_SECONDS)

    async def listen(self, connection: AsyncConnection) -> None:
        """Count notifications until cancelled."""
        async for notice in connection.notifies():
            self.notifications[notice.channel] += 1


@asynccontextmanager
async def watched(url: str) -> AsyncGenerator[DatabaseWatch]:
    """Watch a database while the context lasts. Raises psycopg.Error where it can't be reached."""
    async with (
        await AsyncConnection.connect(url, autocommit=True, application_name=_OWN_NAME) as connection,
        await AsyncConnection.connect(url, autocommit=True, application_name=_OWN_NAME) as listener,
    ):
        for channel in _CHANNELS:
            await listener.execute(f'LISTEN "{channel}"'.encode())
        watch = DatabaseWatch(connection, _postmaster(connection))
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(watch.look()), loop.create_task(watch.listen(listener))]
        try:
            yield watch
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _postmaster(connection: AsyncConnection) -> psutil.Process | None:
    """Return the server's first process, None where it runs on another machine or in a container."""
    host = connection.info.host
    if not (host.startswith("/") or host in ("localhost", "127.0.0.1", "::1")):
        return None
    try:
        parent = psutil.Process(connection.info.backend_pid).parent()
    except psutil.Error:
        return None
    return parent if parent is not None and parent.name() == "postgres" else None


def postgres_cpu_ms(postmaster: psutil.Process) -> float:
    """Return the processor time of a Postgres with all its children, ended ones too."""
    ended = postmaster.cpu_times()
    living = sum(map(cpu_ms, (postmaster, *postmaster.children())))
    return (ended.children_user + ended.children_system) * 1000 + living


def cpu_ms(process: psutil.Process) -> float:
    """Return the processor time of one process, without its children."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:  # a connection that was just closed; its time is the parent's soon
        return 0.0
    return (times.user + times.system) * 1000


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """Processor time of one process until now, without its children."""

    name: str
    cpu_ms: float
    pss_mb: float
    servers_pss_mb: float  # of its MCP servers


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """Use of one process: milliseconds of processor time a second, and megabytes of memory at the end."""

    name: str
    cpu_ms_per_second: float
    pss_mb: float
    servers_pss_mb: float


def sample_processes(processes: Sequence[tuple[str, psutil.Process]]) -> Sequence[ProcessSample]:
    """Return the use of each process until now."""
    return [
        ProcessSample(name, cpu_ms(process), _pss_mb(process), sum(map(_pss_mb, process.children(recursive=True))))
        for name, process in processes
    ]


def use_between(
    before: Sequence[ProcessSample], after: Sequence[ProcessSample], seconds: float
) -> Sequence[ProcessUse]:
    """Return what each process used between two samples."""
    return [
        ProcessUse(end.name, (end.cpu_ms - begin.cpu_ms) / seconds, end.pss_mb, end.servers_pss_mb)
        for begin, end in zip(before, after, strict=True)
    ]


def _pss_mb(process: psutil.Process) -> float:
    try:
        return process.memory_full_info().pss / 2**20
    except psutil.Error:
        return 0.0


def database_error(error: psycopg.Error) -> str:
    """Return the first line of a driver's message."""
    return str(error).strip().partition("\n")[0]
