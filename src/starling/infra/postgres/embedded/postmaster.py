"""The server process: it ends with this process, and stops without losing committed data."""

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import psutil

from starling.core.errors import DatabaseUnavailableError
from starling.infra.postgres.embedded.cluster import Cluster
from starling.infra.postgres.embedded.os_process import die_with_parent

HOST = "127.0.0.1"
_SOCKET_PATH_BYTES = 107
_READY_SECONDS = 180.0  # includes crash recovery
_STOP_SECONDS = 60.0
_POLL_SECONDS = 0.005
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}  # without secrets and without PG* variables

_SETTINGS = {
    "listen_addresses": HOST,
    "max_connections": "200",
    "authentication_timeout": "10s",  # an unfinished login blocks CREATE and DROP DATABASE
    "shared_buffers": "256MB",
    "jit": "off",
    "io_method": "sync",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_parallel_maintenance_workers": "0",  # an index build would need more shared memory than a container has
    "log_checkpoints": "off",
    "bgwriter_delay": "1s",  # it would wake up five times a second
    "unix_socket_permissions": "0700",
}
# Committed data survive a killed server, but not a power failure.
_NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}


def free_port() -> int:
    """Return a TCP port on loopback that is free now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def socket_folder(folder: Path) -> Path | None:
    """Return `folder` if a Unix socket in it has a path that the system accepts, else None."""
    return folder if len(os.fsencode(folder / ".s.PGSQL.65535")) <= _SOCKET_PATH_BYTES else None


def spawn(
    binaries: Path, cluster: Cluster, *, port: int, sockets: Path | None, durable: bool
) -> subprocess.Popen[bytes]:
    """Start `postgres` as a child in its own process group; it gets SIGINT when this process ends.

    The signal is sent when the spawning thread ends, so only the main thread may call this.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("the embedded Postgres must be started from the main thread")
    settings = {**_SETTINGS, "port": str(port), "unix_socket_directories": str(sockets or "")}
    if not durable:
        settings |= _NOT_DURABLE
    arguments = [f"--{name}={value}" for name, value in settings.items()]
    with cluster.log.open("ab") as output:
        return subprocess.Popen(
            [binaries / "postgres", "-D", cluster.data, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env=_ENVIRONMENT,
            process_group=0,
            preexec_fn=die_with_parent(signal.SIGINT),  # noqa: PLW1509 - after setuid, which would clear the signal
            **cluster.account.popen,
        )


def wait_ready(process: subprocess.Popen[bytes], data: Path) -> bool:
    """Wait until the server accepts connections; return False if it ended instead."""
    end = time.monotonic() + _READY_SECONDS
    while time.monotonic() < end:
        if _has_ended(process, _POLL_SECONDS):
            return False
        if _pid_file(data)[7:8] == ["ready"]:
            return True
    stop(process)
    raise DatabaseUnavailableError(
        f"The embedded Postgres wasn't ready within {_READY_SECONDS:.0f} s.", f"Read its log next to {data}."
    )


def stop(process: subprocess.Popen[bytes]) -> None:
    """Stop the server with a fast shutdown: clients are disconnected, committed data are on disk."""
    process.send_signal(signal.SIGINT)
    if not _has_ended(process, _STOP_SECONDS):
        process.kill()
        process.wait()


def _has_ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def end_previous(data: Path) -> None:
    """Make sure that no earlier server uses `data`; the caller must hold the folder's lock.

    A server that outlived its owner is stopped. A pid file whose process has ended or is now another program
    (pids start again in a new container) is removed: Postgres would trust it.
    """
    lines = _pid_file(data)
    if not lines or not lines[0].isdigit():
        return
    previous = running_server(int(lines[0]), data)
    if previous is None:
        # Children of a killed server, which end by themselves; the working directory of all of them is `data`.
        found = [each for each in psutil.process_iter(["cwd", "status"]) if each.info["cwd"] == str(data)]
        _wait_ended([each for each in found if each.info["status"] != psutil.STATUS_ZOMBIE])
        (data / "postmaster.pid").unlink(missing_ok=True)
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        previous.send_signal(signal.SIGINT)
    _wait_ended([previous])


def _wait_ended(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, _STOP_SECONDS)
    if alive:
        raise DatabaseUnavailableError(
            f"An earlier embedded Postgres, process {alive[0].pid}, doesn't stop.",
            f"Wait for it, or end it with `kill -QUIT {alive[0].pid}`, and start again.",
        )


def running_server(pid: int, data: Path) -> psutil.Process | None:
    """Return process `pid` if it is a server that uses `data`."""
    try:
        process = psutil.Process(pid)
        ours = process.status() != psutil.STATUS_ZOMBIE and str(data) in process.cmdline()
    except psutil.NoSuchProcess:
        return None
    return process if ours else None


def _pid_file(data: Path) -> list[str]:
    """Return the lines of `postmaster.pid`: pid first, state eighth; empty without such a file."""
    try:
        return [line.strip() for line in (data / "postmaster.pid").read_text().splitlines()]
    except FileNotFoundError:
        return []
