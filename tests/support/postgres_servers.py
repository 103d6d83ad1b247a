"""Postgres servers beside the embedded one: a primary with a streaming replica, and servers that backups restore."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self, cast

import psutil
import psycopg

from starling.infra.postgres.embedded.binaries import binaries_for
from starling.infra.postgres.embedded.cluster import ROLE, Cluster, initialise, locate
from starling.infra.postgres.embedded.os_process import die_with_parent, service_account
from starling.infra.postgres.embedded.postmaster import HOST
from tests.support.gateway_harness import free_port

DATABASE: Final = "starling"
_SECONDS: Final = 60.0
_SETTINGS: Final[Mapping[str, str]] = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "jit": "off",
    "io_method": "sync",
    "max_parallel_maintenance_workers": "0",
    "fsync": "off",
    "wal_level": "replica",
    "wal_keep_size": "128MB",  # so that a former primary can be rewound
    "wal_receiver_timeout": "5s",
    "wal_retrieve_retry_interval": "100ms",
}


@dataclass
class PostgresServer:
    """A server in a folder of its own, that every user may enter; its role has the password in `password`."""

    folder: Path
    password: str = ""
    port: int = field(default_factory=free_port)
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    _process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    @property
    def data(self) -> Path:
        return self._cluster.data

    @property
    def log(self) -> Path:
        return self._cluster.log

    @property
    def _cluster(self) -> Cluster:
        self.folder.mkdir(mode=0o711, exist_ok=True)
        return locate(self.folder, service_account(), explicit=True)

    def url(self, database: str = DATABASE) -> str:
        return f"postgresql://{ROLE}:{self.password}@{HOST}:{self.port}/{database}"

    def initialise(self) -> Self:
        """Create an empty data folder."""
        initialise(self._cluster, _binaries(), durable=False)
        self.password = self._cluster.password()
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in _SETTINGS.items())
        return self

    def copy_of(self, source: "PostgresServer", *options: str) -> Self:
        """Create the data folder as a base backup of a running server; `-R` makes it a replica."""
        self.password = source.password
        service_account().make_folder(self.data)
        self.run("pg_basebackup", "-D", self.data, "-d", source.url("postgres"), "-c", "fast", *options)
        return self

    def start(self) -> None:
        """Start it and wait until it accepts connections. Must be called from the main thread."""
        if self._process is not None:  # it has crashed
            self._process.wait(_SECONDS)
        settings = {"port": str(self.port), **self.settings}
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [_binaries() / "postgres", "-D", self.data, *(f"--{name}={value}" for name, value in settings.items())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                env=_environment(),
                preexec_fn=die_with_parent(signal.SIGINT),  # noqa: PLW1509 - after setuid, which would clear the signal
                **service_account().popen,
            )
        self.wait_until("SELECT true")

    def wait_until(self, query: str) -> None:
        """Wait until a query returns true."""
        end = time.monotonic() + _SECONDS
        while True:
            with contextlib.suppress(psycopg.OperationalError):
                if self.value(query):
                    return
            if time.monotonic() > end or (self._process is not None and self._process.poll() is not None):
                raise AssertionError(f"{query}\n{self.log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop it with a fast shutdown."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(_SECONDS)
            self._process = None

    def kill(self) -> None:
        """Kill the postmaster and all its children at once, as a machine that loses power does."""
        if self._process is None:
            return
        root = psutil.Process(self._process.pid)
        root.suspend()  # so that it starts no more children
        family = [*root.children(), root]
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait(_SECONDS)
        psutil.wait_procs(family, _SECONDS)
        self._process = None

    def execute(self, *statements: str, database: str = "postgres") -> None:
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def value(self, query: str, database: str = "postgres") -> Any:
        """Return the first value of the first row, None where there is none."""
        with psycopg.connect(self.url(database), autocommit=True, connect_timeout=5) as connection:
            row = connection.execute(query.encode()).fetchone()
            return row[0] if row else None

    def run(self, program: str, *arguments: str | Path) -> str:
        """Run one of Postgres' programs as the server's user, and return its output."""
        return run_program(program, *arguments)


def run_program(program: str, *arguments: str | Path, as_service: bool = True) -> str:
    """Run one of Postgres' programs, by default as the user of the servers, and return its output."""
    command: Sequence[str | Path] = [program_path(program), *arguments]
    user: dict[str, Any] = cast("dict[str, Any]", service_account().popen) if as_service else {}
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", env=_environment(), check=False, **user)
    assert done.returncode == 0, f"{program}: {done.stderr}"
    return done.stdout


def program_path(program: str) -> Path:
    return _binaries() / program


def _binaries() -> Path:
    return binaries_for(service_account())


def _environment() -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TMPDIR": os.environ.get("TMPDIR", "/tmp")}


@contextmanager
def running(*servers: PostgresServer) -> Generator[None]:
    """Stop these servers at the end of the block."""
    try:
        yield
    finally:
        for server in servers:
            server.kill()


class ReplicatedPostgres:
    """A primary with a streaming replica, which take each other's place; clients have one address for both.

    With `synchronous`, a commit waits until the replica has it on disk.
    """

    def __init__(self, folder: Path, *, synchronous: bool = True, ports: Sequence[int] = ()) -> None:
        self._synchronous = synchronous
        first, second = ports or (free_port(), free_port())
        self.primary = PostgresServer(folder / "one", port=first)
        self.replica = PostgresServer(folder / "two", port=second)
        self._ports = (first, second)

    def __enter__(self) -> Self:
        self.primary.initialise().start()
        self.primary.execute(f"CREATE DATABASE {DATABASE}")
        self.replica.copy_of(self.primary, "-R").start()
        self._attached()
        return self

    def __exit__(self, *_: object) -> None:
        self.primary.kill()
        self.replica.kill()

    @property
    def url(self) -> str:
        """The address with both servers, of which a client takes the one that accepts writes."""
        hosts = ",".join(f"{HOST}:{port}" for port in self._ports)
        login = f"{ROLE}:{self.primary.password}"
        return f"postgresql://{login}@{hosts}/{DATABASE}?target_session_attrs=read-write"

    tcp_url = url

    @property
    def pid(self) -> int:
        """The process id of the primary."""
        return self.primary.pid

    def start(self) -> None:
        self.primary.start()

    def stop(self) -> None:
        self.primary.stop()

    def fail_over(self) -> None:
        """Kill the primary and promote the replica, which then has no replica itself."""
        self.primary.kill()
        self.promote()

    def promote(self) -> None:
        """Make the replica the primary."""
        self.primary, self.replica = self.replica, self.primary
        assert self.primary.value("SELECT pg_promote()")

    def rewind(self) -> None:
        """Turn the former primary, which must not run, into a copy of the new one that may follow it."""
        self.replica.run(
            "pg_rewind",
            "-D",
            self.replica.data,
            "--source-server",
            self.primary.url("postgres"),
            "--write-recovery-conf",
        )

    def follow(self) -> None:
        """Start the rewound server as the replica of the new primary."""
        self.replica.start()
        self._attached()

    def _attached(self) -> None:
        self.primary.wait_until("SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming'")
        if self._synchronous:
            self.primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
            self.primary.wait_until("SELECT sync_state = 'sync' FROM pg_stat_replication")
            self.primary.execute("CHECKPOINT")  # commits wait once the checkpointer has read the setting
