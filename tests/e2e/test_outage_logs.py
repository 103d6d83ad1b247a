"""What the logs of an API and a worker with runs say of a Postgres that is away: its beginning and its end, once."""

import asyncio
from typing import Any

import aiohttp

from starling.infra.postgres import availability
from starling.infra.postgres.embedded.server import EmbeddedPostgres
from starling.infra.postgres.schema import upgrade
from tests.chaos.workload import Call
from tests.e2e.test_full_disk import lines
from tests.support.command_line import Service
from tests.support.open_folder import new_open_folder
from tests.support.planned_runs import planned_runs

_POSTGRES = availability.__name__
_OUTAGE_SECONDS = 12  # more than two leases, two sweeps, and several restarts of the queue


async def ask_for_ready(url: str) -> None:
    async with aiohttp.ClientSession(url) as client:
        while True:
            async with client.get("/ready"):
                await asyncio.sleep(0.5)


async def warnings(service: Service) -> list[tuple[str, str, str]]:
    """End a service; return its warnings, and what it said of Postgres."""
    service.process.terminate()
    assert service.process.stderr is not None
    said: list[dict[str, Any]] = lines(await asyncio.to_thread(service.process.stderr.read))
    shown = [line for line in said if line["level"] != "info" or line["event"].startswith("Postgres")]
    return [(line["level"], line["logger"], line["event"]) for line in shown]


async def test_outage_of_postgres_is_a_line_at_its_beginning_and_one_at_its_end() -> None:
    with new_open_folder() as folder, EmbeddedPostgres(folder / "database") as server:
        await upgrade(server.url)
        async with planned_runs(folder, server.url, workers=1) as runs:
            for number in range(4):
                await runs.begin(f"held{number}", Call("charge", "before"))
            asking = asyncio.get_running_loop().create_task(ask_for_ready(runs.api.url))
            server.stop()
            await asyncio.sleep(_OUTAGE_SECONDS)
            server.start()
            await runs.until_ready()
            for number in range(4):
                runs.effects.open(f"held{number}.t1.0.0")
            await runs.until(await runs.begin("after", Call("charge")), "succeeded")
            asking.cancel()
            api, worker = [await warnings(service) for service in runs.services]

    for log in (api, worker):
        begin, end = (event for _, logger, event in log if logger == _POSTGRES)
        assert begin.startswith("Requests to Postgres fail: Postgres can't be used: ")
        assert end.startswith("Postgres can be used again, after ")
    others = [event for _, logger, event in api + worker if logger != _POSTGRES]
    assert [event for event in others if not event.startswith("runs without a valid lease ")] == []
