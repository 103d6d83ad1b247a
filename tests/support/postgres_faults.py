"""Faults of a Postgres: freezing it, ending all connections."""

import signal
from collections.abc import Generator
from contextlib import contextmanager

import psutil
from psycopg import AsyncConnection


@contextmanager
def frozen(pid: int) -> Generator[None]:
    """Stop a postmaster, and with it every backend, for as long as the block lasts."""
    root = psutil.Process(pid)
    root.suspend()  # first, so that it starts no more backends
    stopped = [root, *root.children()]
    for process in stopped:
        _signalled(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in reversed(stopped):
            _signalled(process, signal.SIGCONT)


async def terminate_backends(url: str) -> None:
    """End all other connections to a database."""
    query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> "
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(f"{query} pg_backend_pid()".encode())


def _signalled(process: psutil.Process, number: int) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return
