"""Servers other than the one that most tests share."""

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from starling.infra.postgres.embedded import postmaster
from starling.infra.postgres.embedded.os_process import service_account
from starling.infra.postgres.embedded.server import EmbeddedPostgres

_OLD = Path("/usr/lib/postgresql/15/bin")


@dataclass(frozen=True)
class Owner:
    """Another process with an embedded Postgres."""

    process: subprocess.Popen[str]
    server_pid: int
    url: str


@contextmanager
def owner_of(data_dir: Path, **environment: str) -> Generator[Owner]:
    """Run `owner.py` on a folder; it is ended, if it still runs, with the block."""
    command = [sys.executable, Path(__file__).with_name("owner.py"), data_dir]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment or None
    ) as process:
        assert process.stdout is not None
        known = json.loads(process.stdout.readline())
        yield Owner(process, known["pid"], known["url"])


@pytest.fixture
def own_server(open_folder: Path) -> Generator[EmbeddedPostgres]:
    """A server that the test may stop and start."""
    with EmbeddedPostgres(open_folder, durable=False) as server:
        yield server


@pytest.fixture
def old_server_url(open_folder: Path) -> Generator[str]:
    """The address of a PostgreSQL 15 without pgvector, where the machine has one."""
    if not (_OLD / "postgres").is_file():
        pytest.skip("PostgreSQL 15 is missing: `apt-get install postgresql-15`")
    account = service_account()
    data = open_folder / "old"
    account.make_folder(data)
    subprocess.run(
        [_OLD / "initdb", "-D", data, "-U", "starling", "--auth=trust", "--no-sync"],
        check=True,
        capture_output=True,
        cwd="/",
        **account.popen,
    )
    port = postmaster.free_port()
    process = subprocess.Popen(
        [_OLD / "postgres", "-D", data, f"--port={port}", "--unix_socket_directories=", "--fsync=off"],
        stderr=subprocess.DEVNULL,
        cwd="/",
        **account.popen,
    )
    assert postmaster.wait_ready(process, data)
    yield f"postgresql://starling@127.0.0.1:{port}/postgres"
    postmaster.stop(process)
    shutil.rmtree(data)


@pytest.fixture
def silent_port() -> Generator[int]:
    """A port that takes connections and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]
