"""Services that are started before their database, with sessions to open again, and stopped while they load."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import aiohttp
import psutil
import pytest

from starling.app.container.database import Database
from starling.app.container.services import open_services
from starling.app.runs.acceptance import RunRequest
from starling.core.settings.schema import Limits, Settings
from tests.support.command_line import Process, Service, new_workspace
from tests.support.effect_recorder import EffectRecorder
from tests.support.gateway_harness import SERVERS
from tests.support.platform import CALLER
from tests.support.platform_process import PlatformProcess
from tests.support.sse import read_events
from tests.support.tcp_proxy import proxied

_WARM_RUNS = 5
_TICKS_SECONDS = 0.1  # processor times are counted in steps of 0.01 s; one of the heavy imports takes 0.1 s or more


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("worker",)])
async def test_service_waits_for_postgres_to_start(database_url: str, command: tuple[str, ...]) -> None:
    async with proxied(database_url) as database:
        port = database.proxy.port
        await database.proxy.stop()
        with (
            new_workspace(DATABASE_URL=database.url) as workspace,
            workspace.started(*command, "--json") as process,
        ):
            said = await asyncio.to_thread(_line_of, process)
            await database.proxy.start(port)
            service = await asyncio.to_thread(Service.ready, process)
            process.terminate()
            await asyncio.to_thread(process.wait)  # while the proxy serves it: a service that stops uses the database

    assert "Waiting for Postgres, 60 s at most: " in said
    assert service.said


def _line_of(process: Process) -> str:
    assert process.stderr is not None
    return process.stderr.readline()


async def test_worker_that_is_ready_has_loaded_what_its_first_run_needs(database_url: str, tmp_path: Path) -> None:
    variables = {"DATABASE_URL": database_url, "STARLING_MODEL": "offline:rules", "STARLING_DATA_DIR": str(tmp_path)}
    command = (Path(sys.executable).with_name("starling"), "worker", "--json")  # nothing is imported before
    worker = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=os.environ | variables)
    used = psutil.Process(worker.pid).cpu_times
    try:
        assert worker.stdout is not None
        assert await worker.stdout.readline()
        seconds = [sum(used()[:2])]
        async with open_services(Settings(), Database(database_url, database_url)) as services:
            for number in range(1 + _WARM_RUNS):
                request = RunRequest(input="Hello.", thread_id=f"t{number}")
                key = (await services.runs.acceptance.accept(CALLER, request)).key
                events = [event.type async for event in services.runs.reader.follow(key)]
                assert events[-1] == "done"
                seconds.append(sum(used()[:2]))
    finally:
        worker.terminate()
        await worker.communicate()

    first, warm = seconds[1] - seconds[0], (seconds[-1] - seconds[1]) / _WARM_RUNS
    assert first < 3 * warm + _TICKS_SECONDS, (
        f"start: {seconds[0]:.2f} s, first run: {first:.2f} s, later ones: {warm:.3f} s"
    )


async def test_restart_opens_the_session_of_a_server_that_was_called_before_without_a_request(
    open_folder: Path,
) -> None:
    recording = [str(SERVERS / "recording.py"), str(open_folder / "log")]
    servers = {
        "recorder": {"command": sys.executable, "args": recording, "x-starling": {"effect": "read"}},
        "idle": EffectRecorder(open_folder / "effects").as_server(),
    }
    async with PlatformProcess.running(open_folder, servers, {"STARLING_MODEL": "offline:rules"}) as platform:
        asked = await platform.ask("Record the text 'kept'")
        await platform.end()

        await platform.start()
        async with asyncio.timeout(60):
            while not (opened := _running(platform)):  # noqa: ASYNC110 - other processes
                await asyncio.sleep(0.05)

    assert asked[-1].data["status"] == "succeeded"
    assert opened == {"recording.py"}


def _running(platform: PlatformProcess) -> set[str]:
    """Return the programs of the servers that run."""
    words: set[str] = set()
    for process in platform.family():
        with contextlib.suppress(psutil.NoSuchProcess):
            words |= {Path(word).name for word in process.cmdline()}
    return words & {"recording.py", "effects.py"}


_REQUEST = {"input": "Hello.", "thread_id": "t"}


async def test_request_that_is_accepted_while_a_loading_platform_stops_is_executed_after_the_next_start(
    database_url: str,
) -> None:
    sent, trace = asyncio.Event(), aiohttp.TraceConfig()

    async def note(*_: object) -> None:
        sent.set()

    trace.on_request_chunk_sent.append(note)
    with new_workspace(DATABASE_URL=database_url) as workspace:
        with workspace.started("up", "--port", "0", "--json", installed=True) as process:
            service = await asyncio.to_thread(Service.ready, process)
            async with (
                aiohttp.ClientSession(service.url, trace_configs=[trace]) as client,
                asyncio.TaskGroup() as tasks,
            ):
                answered = tasks.create_task(_accepted(client))
                await sent.wait()
                process.send_signal(signal.SIGTERM)
                signalled = time.monotonic()
            code = await asyncio.to_thread(process.wait)
            seconds = time.monotonic() - signalled
        with workspace.running("up", "--port", "0") as again:
            async with (
                aiohttp.ClientSession(again.url) as client,
                client.get(f"/v1/runs/{answered.result()}/events") as response,
            ):
                events = [event async for event in read_events(response)]

    assert (code, events[-1].data["status"]) == (0, "succeeded")
    assert seconds < Limits().drain_seconds + 20


async def _accepted(client: aiohttp.ClientSession) -> str:
    async with client.post("/v1/runs", json=_REQUEST) as response:
        assert response.status == 202, await response.text()
        return (await response.json())["run_id"]
