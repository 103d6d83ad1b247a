"""A full disk under Postgres: idle processes find out, say so once with the cause, and say when it is over."""

import asyncio
import json
import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import aiohttp
import pytest

from starling.infra.postgres.schema import upgrade
from tests.support.command_line import CliWorkspace, new_workspace
from tests.support.open_folder import new_open_folder
from tests.support.postgres_servers import DATABASE, PostgresServer, running

_NOTICED_SECONDS = 30.0  # more than the interval of an idle process, which is 10 s, on a busy machine, too


@contextmanager
def small_disk() -> Generator[Path]:
    """Yield a folder with room for 420 MB."""
    with new_open_folder() as folder:
        mounted = (
            os.geteuid() == 0
            and not subprocess.run(
                ["mount", "-t", "tmpfs", "-o", "size=420m,mode=711", "tmpfs", folder], check=False, capture_output=True
            ).returncode
        )
        if not mounted:
            pytest.skip("a file system can't be mounted here")
        try:
            yield folder
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path) -> Path:
    """Use up all room."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(2**16))
        except OSError:
            return filler


async def until_ready_is(status: int, url: str, workspace: CliWorkspace) -> Any:
    """Return what an admin is told once `/ready` answers with this status."""
    end = monotonic() + _NOTICED_SECONDS
    async with aiohttp.ClientSession(url, headers=workspace.admin_headers) as client:
        while True:
            async with client.get("/ready") as response:
                if response.status == status:
                    return await response.json()
            assert monotonic() < end, response.status
            await asyncio.sleep(0.5)


def lines(log: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.splitlines() if line.startswith("{")]


def of_postgres(log: str) -> list[tuple[str, str]]:
    return [(line["level"], line["event"]) for line in lines(log) if "Postgres" in line["event"]]


async def test_idle_processes_find_out_that_the_disk_is_full_and_that_it_is_not_any_more() -> None:
    with small_disk() as disk, running(server := PostgresServer(disk / "pg")):
        server.initialise().start()
        server.execute(f"CREATE DATABASE {DATABASE}")
        await upgrade(server.url())
        with (
            new_workspace(DATABASE_URL=server.url(), STARLING_WORKER_PORT="0", LOG_LEVEL="INFO") as workspace,
            workspace.running("serve", "--port", "0") as api,
            workspace.running("worker") as worker,
        ):
            assert workspace.starling("ask", "Hello", "--url", api.url).returncode == 0
            filler = fill(disk)
            told = [await until_ready_is(503, service.url, workspace) for service in (worker, api)]
            metrics = await metrics_of(workspace, worker.url)
            filler.unlink()
            for service in (worker, api):
                await until_ready_is(200, service.url, workspace)
            asked = workspace.starling("ask", "Hello", "--url", api.url)
            logs: list[str] = []
            for service in (worker, api):
                service.process.terminate()
                assert service.process.stderr is not None
                logs.append(await asyncio.to_thread(service.process.stderr.read))

    assert [body["code"] for body in told] == ["database_unavailable"] * 2
    assert all("No space left on device" in body["detail"] for body in told)
    assert "starling_database_up 0.0" in metrics
    assert asked.returncode == 0, asked.stderr
    for log in logs:
        (level, cause), (end_level, end) = of_postgres(log)
        assert (level, end_level) == ("warning", "info")
        assert "No space left on device" in cause
        assert end.startswith("Postgres can be used again")


async def metrics_of(workspace: CliWorkspace, url: str) -> str:
    async with (
        aiohttp.ClientSession(url, headers=workspace.admin_headers) as client,
        client.get("/metrics") as response,
    ):
        return await response.text()
