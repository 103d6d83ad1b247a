"""A restore under load: Postgres is stopped, restored from a backup of that moment, and goes on at the same address.

Services and clients stay as they are. Nothing is missing in the backup, so every invariant holds.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from starling.infra.postgres.embedded.cluster import ROLE
from tests.chaos.client_history import ClientHistory
from tests.chaos.clients import keep_busy
from tests.chaos.cluster import Cluster, open_cluster
from tests.chaos.observations import Observations, collect
from tests.support.backups import Backups, Take, moment, source_of
from tests.support.postgres_servers import DATABASE, PostgresServer, free_port

_SECONDS = 120.0
_LOOK_SECONDS = 0.1
_BURN_TRANSACTIONS = "DO $$ BEGIN FOR n IN 1..{} LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"


class RestorablePostgres:
    """A server and its backups, of which a restored server takes the place."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._backups: Backups | None = None

    def __enter__(self) -> Self:
        self._backups = source_of(self._folder)
        self._server, self._port = self._backups.source, self._backups.source.port
        return self

    def __exit__(self, *_: object) -> None:
        if self._backups is not None:
            self._backups.source.kill()
            self._backups.restored.kill()

    @property
    def url(self) -> str:
        return f"{self._server.url()}?connect_timeout=5"

    tcp_url = url

    @property
    def pid(self) -> int:
        return self._server.pid

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    async def base_backup(self) -> None:
        """Make the base backup of a recovery to a moment, while the server is in use."""
        assert self._backups is not None
        await asyncio.to_thread(self._backups.run, "pg_basebackup")

    def replace(self, take: Take) -> int:
        """Take a backup while no client reaches the server, and put a server restored from it in its place.

        Returns how many runs the backup has that were not finished.
        """
        assert self._backups is not None
        source, restored = self._backups.source, self._backups.restored
        _move(source, free_port())
        restore = take(self._backups)
        transactions = source.value("SELECT pg_current_xact_id()::text::bigint")  # also ends the recovery to the moment
        source.execute("SELECT pg_switch_wal()")
        source.stop()
        restore()
        restored.execute(f"ALTER ROLE {ROLE} PASSWORD '{source.password}'")
        restored.password = source.password
        if take is not moment:  # transactions of the change log have one number each
            restored.execute(_BURN_TRANSACTIONS.format(transactions))
        unfinished: int = restored.value("SELECT count(*) FROM runs WHERE ended_at IS NULL", DATABASE)
        _move(restored, self._port)
        self._server = restored
        return unfinished


def _move(server: PostgresServer, port: int) -> None:
    server.stop()
    server.port = port
    server.start()


async def restore_under_load(take: Take, folder: Path, *, callers: int) -> Observations:
    """Restore with `take` under a load of `callers` of each tenant, in `folder`, which everybody may enter."""
    history, stop = ClientHistory(), asyncio.Event()
    async with open_cluster(folder, "native", postgres=RestorablePostgres) as cluster, asyncio.TaskGroup() as group:
        postgres = cluster.postgres
        assert isinstance(postgres, RestorablePostgres)
        load = group.create_task(keep_busy(cluster, history, callers, stop))
        await _until(cluster, lambda statuses: "succeeded" in statuses)
        await postgres.base_backup()
        before = len(history.accepted)
        await _until(cluster, lambda statuses: len(statuses) > before + callers and "running" in statuses)
        assert postgres.replace(take) > 0
        known = len(history.accepted)
        await _until(cluster, lambda _: len(history.accepted) > known + callers)
        stop.set()
        await load
        await asyncio.gather(*(service.end() for service in cluster.services))
        return await collect(cluster, history)


async def _until(cluster: Cluster, holds: Callable[[Sequence[str]], bool]) -> None:
    """Wait until the statuses of the runs satisfy `holds`."""
    async with asyncio.timeout(_SECONDS):
        while not holds([row["status"] for row in await cluster.rows("SELECT status FROM runs")]):  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)
