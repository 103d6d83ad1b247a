"""Processes of servers are ended after their platform only, and only those of the platform's users."""

import logging
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from pydantic import SecretStr

from mcp_gateway.configuration.address_rules import PUBLIC_ONLY
from mcp_gateway.configuration.servers import server_of
from mcp_gateway.connections import connect
from mcp_gateway.sessions.checked_connections import CheckedConnections
from mcp_gateway.sessions.isolation import NO_PRIVATE_FILES, PrivateFiles, ServerUser
from mcp_gateway.sessions.leftover_processes import MARK, end_leftovers
from mcp_gateway.sessions.pool import SessionPool
from starling.app.container.database import Database
from starling.app.container.servers import open_servers
from starling.app.container.services import open_services
from starling.core.ids import process_name
from starling.core.settings.schema import Limits, Settings
from tests.integration.mcp_gateway.test_shim import as_root, executing, pids_in, record
from tests.support.gateway_harness import SERVERS, wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows variables of processes")
PLATFORM = """
import asyncio, os, sys
from mcp_gateway.configuration.address_rules import PUBLIC_ONLY
from mcp_gateway.configuration.servers import server_of
from mcp_gateway.sessions.checked_connections import CheckedConnections
from mcp_gateway.sessions.pool import SessionPool
from starling.core.settings.schema import Limits
async def main():
    async with SessionPool(Limits(), {"PATH": os.environ["PATH"]}, CheckedConnections(PUBLIC_ONLY)) as sessions:
        sessions.warm("shop", server_of({"command": "sh", "args": sys.argv[1:]}))
        await asyncio.Event().wait()
asyncio.run(main())
"""
IGNORING = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); signal.pause()"
ENDED = f"{process_name().rpartition('.')[0]}.1"  # another process had this one's id


__all__ = ["record"]  # the fixture of that name


def family(pid: int) -> list[psutil.Process]:
    return [process := psutil.Process(pid), *process.children(recursive=True)]


def daemonizing(record: Path) -> tuple[str, ...]:
    """Arguments of `sh` for a server that starts a daemon."""
    server = f"exec {sys.executable} {SERVERS / 'misbehaving.py'} fine"
    return "-c", f"setsid sleep 99 > /dev/null & echo $! >> {record}; {server}"


class Leftovers(ExitStack):
    def start(self, *command: str, owner: str, user: int | None = None) -> subprocess.Popen[bytes]:
        environment = {"PATH": os.environ["PATH"], MARK: f"{owner} shop"}
        process = subprocess.Popen(command, env=environment, user=user, stdout=subprocess.PIPE)
        self.enter_context(process)
        self.callback(process.kill)
        return process


@pytest.fixture
def leftovers() -> Generator[Leftovers]:
    with Leftovers() as stack:
        yield stack


async def test_process_of_a_platform_that_has_ended_is_terminated_then_killed(
    leftovers: Leftovers, caplog: pytest.LogCaptureFixture
) -> None:
    willing = leftovers.start("sleep", "99", owner=ENDED)
    ignoring = leftovers.start(sys.executable, "-c", IGNORING, owner=ENDED)
    assert ignoring.stdout is not None
    ignoring.stdout.readline()

    with caplog.at_level(logging.WARNING):
        await end_leftovers(NO_PRIVATE_FILES, seconds=0.2)

    assert (willing.wait(60), ignoring.wait(60)) == (-15, -9)
    assert "outlived a killed platform are ended: {'shop': 2}" in caplog.text


async def test_marks_that_are_not_of_a_platform_that_has_ended_count_for_nothing(leftovers: Leftovers) -> None:
    host, *_, space = process_name().split(":")
    forged = (f"{host}:{number}:{space}" for number in ("", "-1", "x", "9" * 30))
    kept = [leftovers.start("sleep", "99", owner=owner) for owner in (process_name(), "", *forged)]

    await end_leftovers(NO_PRIVATE_FILES, seconds=0)

    assert [process.poll() for process in kept] == [None] * 6


@as_root
async def test_processes_of_the_servers_user_are_ended_and_those_of_others_stay(leftovers: Leftovers) -> None:
    of_server = leftovers.start("sleep", "99", owner=ENDED, user=(user := ServerUser.of("nobody")).uid)
    of_other = leftovers.start("sleep", "99", owner=ENDED, user=ServerUser.of("daemon").uid)

    await end_leftovers(PrivateFiles(Path(), user=user), seconds=0)

    assert of_server.wait(60) < 0
    assert of_other.poll() is None


async def test_daemon_of_a_server_of_a_living_platform_stays(record: Path) -> None:
    server = server_of({"command": "sh", "args": daemonizing(record)})
    environment = {"PATH": os.environ["PATH"]}
    async with SessionPool(Limits(), environment, CheckedConnections(PUBLIC_ONLY)) as sessions:
        sessions.warm("shop", server)
        await wait_for(pids_in(record, 1))

        await end_leftovers(NO_PRIVATE_FILES, seconds=0)

        assert len(executing(record)) == 1


async def test_daemon_whose_platform_shim_and_guard_were_killed_is_ended_at_the_next_start(
    database_url: str, record: Path
) -> None:
    with subprocess.Popen([sys.executable, "-c", PLATFORM, *daemonizing(record)]) as platform:
        await wait_for(pids_in(record, 1))
        killed = [process for process in family(platform.pid) if process.pid not in executing(record)]
        for process in killed:
            process.suspend()  # so that none of them sees that another one has ended
        for process in killed:
            process.kill()
    left = executing(record)

    settings = Settings(database_url=SecretStr(database_url), model=("offline:rules",))
    async with (
        open_services(settings, Database(database_url, database_url)) as services,
        open_servers(settings, services.storage, connect),
    ):
        await wait_for(lambda: not executing(record))

    assert len(left) == 1
