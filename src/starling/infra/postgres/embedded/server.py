"""The embedded server: one process owns the data folder and the server, others can attach."""

import asyncio
import fcntl
import json
import logging
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

import psutil
import psycopg

from starling.core.background_tasks import in_background
from starling.core.errors import ConfigurationError, DatabaseUnavailableError
from starling.core.outages import Outage
from starling.infra.postgres.embedded import postmaster
from starling.infra.postgres.embedded.binaries import binaries_for
from starling.infra.postgres.embedded.cluster import ROLE, Cluster, control_folder, initialise, locate, write_private
from starling.infra.postgres.embedded.os_process import service_account

DATABASE = "starling"
_PORT_ATTEMPTS = 5  # at finding a port that is still free when Postgres takes it
_CONNECT_SECONDS = 10
_PORT_TAKEN = "could not bind"
_LEAST_BYTES = 2**20  # without which Postgres doesn't start
_FATAL = re.compile("FATAL|PANIC")
_LOCK = "lock"
_RUNTIME = "runtime.json"


class EmbeddedPostgres:
    """A PostgreSQL server that ends with this process, even if the process is killed.

    `with EmbeddedPostgres(data_dir) as server:` starts it (in 0.5 s; the first time it also creates the data
    folder) and stops it cleanly. `start` must be called from the main thread. `explicit`: the user named
    `data_dir`, so the data are stored there or not at all. `durable=False`, for tests, doesn't protect committed
    data against a power failure. `meanwhile` is called once, while the server starts.

    Raises ConfigurationError if another process owns the folder or the platform has
    no embedded server, DatabaseUnavailableError if it doesn't start.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        explicit: bool = False,
        durable: bool = True,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> None:
        self._data_dir = data_dir
        self._explicit = explicit
        self._durable = durable
        self._meanwhile = meanwhile
        self._lock: int | None = None
        self._cluster: Cluster | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The address of the database: over the Unix socket where its path is short enough, else over TCP."""
        return self._url(self._sockets)

    @property
    def tcp_url(self) -> str:
        """The address of the database over TCP on loopback."""
        return self._url(None)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id of the server, 0 while it doesn't run."""
        return self._process.pid if self._process is not None else 0

    def start(self) -> None:
        """Lock the folder and start the server; after `stop`, it is started on the same port if that is free."""
        if self.is_running:
            return
        self.stop()  # release the lock and files of a server that ended unexpectedly
        account = service_account()
        binaries = binaries_for(account)
        self._cluster = locate(self._data_dir, account, explicit=self._explicit)
        self._lock_folder()
        try:
            postmaster.end_previous(self._cluster.data)
            initialise(self._cluster, binaries, durable=self._durable)
            self._launch(binaries)
            self._make_database()
            self._publish()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the server and unlock the folder. Committed data stay."""
        if self._process is not None:
            self._runtime_file.unlink(missing_ok=True)
            postmaster.stop(self._process)
            self._process = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def _found(self) -> Cluster:
        if self._cluster is None:
            raise RuntimeError("the embedded Postgres hasn't been started")
        return self._cluster

    @property
    def _sockets(self) -> Path | None:
        return postmaster.socket_folder(self._found.run)

    @property
    def _runtime_file(self) -> Path:
        return self._found.control / _RUNTIME

    def _url(self, sockets: Path | None, database: str = DATABASE) -> str:
        login = f"{ROLE}:{self._found.password()}"
        if sockets is None:
            return f"postgresql://{login}@{postmaster.HOST}:{self._port}/{database}"
        return f"postgresql://{login}@/{database}?host={quote(str(sockets), safe='')}&port={self._port}"

    def _lock_folder(self) -> None:
        """Take the folder's lock, which the system releases when this process ends."""
        path = self._found.control / _LOCK
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(lock, 20, 0).decode() or "unknown"
            os.close(lock)
            raise ConfigurationError(
                f"The embedded Postgres in {path.parent} belongs to process {owner}, which is still running.",
                "Stop that process, choose another STARLING_DATA_DIR, or set DATABASE_URL.",
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        self._lock = lock

    def _launch(self, binaries: Path) -> None:
        cluster = self._found
        port = self._port or postmaster.free_port()
        for _ in range(_PORT_ATTEMPTS):
            if cluster.log.exists():  # only the previous log is kept
                cluster.log.replace(cluster.log.with_name(f"{cluster.log.name}.previous"))
            cluster.log.touch(mode=0o600)
            process = postmaster.spawn(binaries, cluster, port=port, sockets=self._sockets, durable=self._durable)
            self._process, self._port = process, port
            # Once: not at a second port, and not when the server is started again later.
            meanwhile, self._meanwhile = self._meanwhile, lambda: None
            meanwhile()
            if postmaster.wait_ready(process, cluster.data):
                return
            if _PORT_TAKEN not in cluster.log.read_text(errors="replace"):
                break
            port = postmaster.free_port()
        lines = [line for line in cluster.log.read_text(errors="replace").splitlines() if _FATAL.search(line)]
        if not lines and shutil.disk_usage(cluster.home).free < _LEAST_BYTES:  # the log had no room for it either
            why = f"no space is left on the disk of {cluster.home}"
            raise DatabaseUnavailableError(f"The embedded Postgres didn't start: {why}.", "Free some space.")
        last = lines[-1] if lines else f"it ended at {time.strftime('%H:%M:%S')} without an error message"
        raise DatabaseUnavailableError(f"The embedded Postgres didn't start: {last}", f"Its log is {cluster.log}.")

    def _make_database(self) -> None:
        """Make sure that the server can be used, and that there is the database."""
        url = self._url(self._sockets, "postgres")
        try:
            with psycopg.connect(url, autocommit=True, connect_timeout=_CONNECT_SECONDS) as connection:
                found = connection.execute("SELECT FROM pg_database WHERE datname = %s", (DATABASE,))
                if not found.rowcount:
                    connection.execute(f"CREATE DATABASE {DATABASE}")
        except psycopg.OperationalError as error:
            raise DatabaseUnavailableError(
                f"The embedded Postgres started but can't be used: {error}", f"Its log is {self._found.log}."
            ) from error

    def _publish(self) -> None:
        known = {"pid": self.pid, "created": psutil.Process(self.pid).create_time(), "url": self.url}
        write_private(self._runtime_file, json.dumps(known))


def attach(data_dir: Path) -> str | None:
    """Return the address of the embedded server that another process runs on `data_dir`; None if none answers."""
    try:
        known = json.loads((control_folder(data_dir) / _RUNTIME).read_text())
        if psutil.Process(known["pid"]).create_time() != known["created"]:
            return None
        psycopg.connect(known["url"], connect_timeout=_CONNECT_SECONDS).close()
    except (FileNotFoundError, PermissionError, psutil.NoSuchProcess, psycopg.OperationalError):
        return None
    return known["url"]


_STOP_SECONDS: Final = 60.0  # the task may be starting the server
_CHECK_SECONDS: Final = 0.5  # between looks at whether the server still runs
_log = logging.getLogger(__name__)


def restarting(server: EmbeddedPostgres) -> AbstractAsyncContextManager[asyncio.Task[None]]:
    """Restart the server, on the same port, whenever it ends for as long as the context lasts.

    Yields the task that does so. It ends only with an error: DatabaseUnavailableError if the server has to take
    another port. The loop must run in the main thread.
    """
    return in_background(_restart_whenever_ended(server), "restart-postgres", _STOP_SECONDS)


async def _restart_whenever_ended(server: EmbeddedPostgres) -> None:
    url = server.url
    outage = Outage(_log, "the embedded Postgres is restarted", "the embedded Postgres runs again")
    while True:
        await asyncio.sleep(_CHECK_SECONDS)
        if server.is_running:
            continue
        if not outage.lasts:
            outage.failed("it ended")
        server.stop()
        try:
            server.start()
        except DatabaseUnavailableError as error:  # remains of the former server may need a moment
            outage.failed(error)
        else:
            if server.url != url:
                raise DatabaseUnavailableError(
                    "The embedded Postgres was restarted, but its former port is in use.", "Start Starling again."
                )
            outage.recovered()
