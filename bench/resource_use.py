"""What a load costs: processor time, WAL, transactions, notifications, connections and stored bytes."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import psutil
import psycopg
from psycopg import AsyncConnection

from bench.line_process import ProcessEndedError
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
    """Costs of one run. Processor time, WAL and writing transactions are those of the whole server."""

    cpu_ms: float | None
    wal_bytes: float
    full_page_images: float  # WAL depends on them, and they on how often Postgres makes a checkpoint
    transactions: float
    write_transactions: float
    stored_bytes: float  # with indexes, and dead rows that are not vacuumed yet
    notifications: Mapping[str, float]

    @classmethod
    def of(cls, before: DatabaseSample, after: DatabaseSample, runs: int) -> "DatabaseUse":
        """Divide what was used between two samples by the runs that ended between them."""
        cpu = None if before.cpu_ms is None or after.cpu_ms is None else (after.cpu_ms - before.cpu_ms) / runs
        return cls(
            cpu,
            (after.wal_bytes - before.wal_bytes) / runs,
            (after.full_page_images - before.full_page_images) / runs,
            (after.transactions - before.transactions) / runs,
            (after.write_transactions - before.write_transactions) / runs,
            (after.stored_bytes - before.stored_bytes) / runs,
            {name: (total - before.notifications.get(name, 0)) / runs for name, total in after.notifications.items()},
        )


@dataclass(frozen=True, slots=True)
class OpenConnections:
    """The most connections that were open at a time: of each application, and of all together."""

    by_application: Mapping[str, int]
    together: int


class DatabaseWatch:
    """Samples one database. Made by `watched`."""

    def __init__(
        self, connection: AsyncConnection, postmaster: psutil.Process | None, own: Sequence[psutil.Process]
    ) -> None:
        """`own` are the server's processes for this watch, whose processor time doesn't count."""
        self.notifications: Counter[str] = Counter()
        self._by_application: Counter[str] = Counter()
        self._together = 0
        self._connection = connection
        self._postmaster = postmaster
        self._own = own
        self._asking = asyncio.Lock()
        self._asked = 0  # transactions of our own

    @property
    def connections(self) -> OpenConnections:
        return OpenConnections(dict(self._by_application), self._together)

    async def sample(self) -> DatabaseSample:
        """Return the totals until now."""
        async with self._asking:
            row = await (await self._connection.execute(_COUNTS)).fetchone()
            self._asked += 1
        assert row is not None
        wal, images, transactions, *others = row
        cpu = None
        if self._postmaster is not None:
            cpu = postgres_cpu_ms(self._postmaster) - sum(map(cpu_ms, self._own))
        counts = wal, images, transactions - self._asked, *others
        return DatabaseSample(*counts, notifications=dict(self.notifications), cpu_ms=cpu)

    async def look(self) -> None:
        """Count the connections again and again until cancelled."""
        while True:
            async with self._asking:
                rows = await (await self._connection.execute(_CONNECTIONS.encode())).fetchall()
                self._asked += 1
            found = Counter(dict(rows))
            self._by_application |= found  # the larger of each
            self._together = max(self._together, found.total())
            await asyncio.sleep(_LOOK_SECONDS)

    async def listen(self, connection: AsyncConnection) -> None:
        """Count notifications until cancelled."""
        async for notice in connection.notifies():
            self.notifications[notice.channel] += 1


@asynccontextmanager
async def watched(url: str) -> AsyncGenerator[DatabaseWatch]:
    """Watch a database while the context lasts.

    Raises psycopg.Error where it can't be reached, an exception group with it where the connection is lost.
    """
    async with (
        await AsyncConnection.connect(url, autocommit=True, application_name=_OWN_NAME) as connection,
        await AsyncConnection.connect(url, autocommit=True, application_name=_OWN_NAME) as listener,
    ):
        for channel in _CHANNELS:
            await listener.execute(f'LISTEN "{channel}"'.encode())
        postmaster = _postmaster(connection)
        own = [psutil.Process(each.info.backend_pid) for each in (connection, listener)] if postmaster else []
        watch = DatabaseWatch(connection, postmaster, own)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(watch.look()), group.create_task(watch.listen(listener))]
            try:
                yield watch
            finally:
                for task in tasks:
                    task.cancel()


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
        return _own_cpu_ms(process)
    except psutil.NoSuchProcess:  # a connection that was just closed; its time is the parent's soon
        return 0.0


def _own_cpu_ms(process: psutil.Process) -> float:
    times = process.cpu_times()
    return (times.user + times.system) * 1000


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """Processor time of one process until now, without its children."""

    name: str
    cpu_ms: float
    pss_mb: float | None  # None where this user may not read it
    servers_pss_mb: float | None  # of its MCP servers


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """Use of one process: milliseconds of processor time a second, and megabytes of memory at the end."""

    name: str
    cpu_ms_per_second: float
    pss_mb: float | None
    servers_pss_mb: float | None


def sample_processes(processes: Sequence[tuple[str, psutil.Process]]) -> Sequence[ProcessSample]:
    """Return the use of each process until now. Raises ProcessEndedError where one has ended."""
    try:
        return [
            ProcessSample(name, _own_cpu_ms(process), _pss_mb([process]), _pss_mb(process.children(recursive=True)))
            for name, process in processes
        ]
    except psutil.NoSuchProcess as error:
        ended = next(name for name, process in processes if process.pid == error.pid)
        raise ProcessEndedError(f"{ended} has ended; see its messages above") from None


def use_between(
    before: Sequence[ProcessSample], after: Sequence[ProcessSample], seconds: float
) -> Sequence[ProcessUse]:
    """Return what each process used between two samples."""
    return [
        ProcessUse(end.name, (end.cpu_ms - begin.cpu_ms) / seconds, end.pss_mb, end.servers_pss_mb)
        for begin, end in zip(before, after, strict=True)
    ]


def _pss_mb(processes: Iterable[psutil.Process]) -> float | None:
    """Return the memory of processes that still run; None where only root may read it, as services protect theirs."""
    found = 0
    for process in processes:
        try:
            found += process.memory_full_info().pss
        except psutil.AccessDenied:
            return None
        except psutil.NoSuchProcess:
            continue
    return found / 2**20


def database_error(error: psycopg.Error) -> str:
    """Return the first line of a driver's message."""
    return str(error).strip().partition("\n")[0]
