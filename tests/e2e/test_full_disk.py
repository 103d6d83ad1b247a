"""A full disk under Postgres: idle and busy processes find out, say so once with the cause, and say when it is over."""

import asyncio
import json
import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

import aiohttp
import pytest

from starling.core.errors import ConfigurationError, DatabaseUnavailableError
from starling.infra.postgres.embedded.server import EmbeddedPostgres
from starling.infra.postgres.schema import upgrade
from tests.chaos.workload import Call
from tests.support.command_line import CliWorkspace, Service, new_workspace
from tests.support.open_folder import new_open_folder
from tests.support.planned_runs import first_call, planned_runs
from tests.support.postgres_servers import DATABASE, PostgresServer, running

_NOTICED_SECONDS = 30.0  # more than the interval of an idle process, which is 10 s, on a busy machine, too
_FRESH_SECONDS = 1.0  # for which `/ready` may answer by an earlier check
_RUNS = 6


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


async def until_ready_is(status: int, url: str, workspace: CliWorkspace) -> tuple[Any, float]:
    """Return what an admin is told once `/ready` answers with this status, and when it was last asked in vain."""
    end, in_vain = monotonic() + _NOTICED_SECONDS, -inf
    async with aiohttp.ClientSession(url, headers=workspace.admin_headers) as client:
        while True:
            asked = monotonic()
            async with client.get("/ready") as response:
                if response.status == status:
                    return await response.json(), in_vain
            in_vain = asked
            assert monotonic() < end, response.status
            await asyncio.sleep(0.2)


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
            told = [(await until_ready_is(503, service.url, workspace))[0] for service in (worker, api)]
            metrics = await metrics_of(workspace, worker.url)
            with new_workspace(DATABASE_URL=server.url()) as other:
                begun = other.starling("up", "--port", "0")
            filler.unlink()
            for service in (worker, api):
                await until_ready_is(200, service.url, workspace)
            asked = workspace.starling("ask", "Hello", "--url", api.url)
            logs = [await log_of(service) for service in (worker, api)]

    assert [body["code"] for body in told] == ["database_unavailable"] * 2
    assert all("No space left on device" in body["detail"] for body in told)
    assert "starling_database_up 0.0" in metrics
    assert (begun.returncode, begun.stdout) == (3, "")
    assert "No space left on device.\n  Check that Postgres runs, has connections and disk space left" in begun.stderr
    assert asked.returncode == 0, asked.stderr
    for log in logs:
        assert_full_once(log)


async def log_of(service: Service) -> str:
    """End a service and return what it logged."""
    service.process.terminate()
    assert service.process.stderr is not None
    return await asyncio.to_thread(service.process.stderr.read)


def assert_full_once(log: str) -> None:
    """Check that an outage of Postgres is one warning with its cause, and one line when it is over."""
    (level, cause), (end_level, end) = of_postgres(log)
    assert (level, end_level) == ("warning", "info")
    assert "No space left on device" in cause
    assert end.startswith("Postgres can be used again")


@pytest.mark.parametrize("seconds", [0, pytest.param(12, marks=pytest.mark.soak, id="for-more-than-two-leases")])
async def test_processes_with_runs_in_flight_find_out_that_the_disk_is_full_and_lose_no_run(
    open_folder: Path, seconds: int
) -> None:
    with small_disk() as disk, running(server := PostgresServer(disk / "pg")):
        server.initialise().start()
        server.execute(f"CREATE DATABASE {DATABASE}")
        await upgrade(server.url())
        async with planned_runs(open_folder, server.url(), workers=1) as runs:
            services = [runs.api, *runs.workers]
            tokens = [f"held{number}" for number in range(_RUNS)]
            accepted = [await runs.begin(token, *[Call("put", "before", "long")] * 3) for token in tokens]
            for token in tokens:
                await runs.effects.until("arrived", first_call(token))
            server.execute("SELECT pg_switch_wal()", "CHECKPOINT")  # without room for its log Postgres would crash
            for service in services:
                await until_ready_is(200, service.url, runs.workspace)
            filler, filled = fill(disk), monotonic()
            for token in tokens:
                for task in (1, 2, 3):
                    runs.effects.open(f"{token}.t{task}.0.0.gate")
            told = [await until_ready_is(503, service.url, runs.workspace) for service in services]
            await asyncio.sleep(seconds)
            held_up = [(await runs.request("GET", f"/v1/runs/{run_id}"))[1]["status"] for run_id in accepted]
            filler.unlink()
            for service in services:
                await until_ready_is(200, service.url, runs.workspace)
            for run_id in accepted:
                await runs.until(run_id, "succeeded")
            logs = [await log_of(service) for service in services]

    assert "running" in held_up or "queued" in held_up
    assert all(in_vain - filled <= _FRESH_SECONDS for _, in_vain in told)
    assert all("No space left on device" in body["detail"] for body, _ in told)
    for log in logs:
        assert_full_once(log)


def test_embedded_server_whose_disk_is_full_says_so() -> None:
    with small_disk() as disk:
        filler = fill(disk)
        os.truncate(filler, filler.stat().st_size - 10 * 2**20)  # enough to begin, and less than it needs
        with pytest.raises(ConfigurationError, match=r"can't be set up in .* No space left on device"):
            EmbeddedPostgres(disk).start()
        filler.unlink()
        with EmbeddedPostgres(disk, durable=False):
            pass
        fill(disk)
        with pytest.raises(DatabaseUnavailableError, match=r"didn't start: no space is left on the disk of /") as error:
            EmbeddedPostgres(disk).start()

    assert error.value.remedy == "Free some space."


async def metrics_of(workspace: CliWorkspace, url: str) -> str:
    async with (
        aiohttp.ClientSession(url, headers=workspace.admin_headers) as client,
        client.get("/metrics") as response,
    ):
        return await response.text()
