"""SIGTERM right after a platform is ready, while it still loads what requests need."""

import asyncio
import signal
import time

import aiohttp

from starling.core.settings.schema import Limits
from tests.support.command_line import Service, new_workspace
from tests.support.sse import read_events

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
