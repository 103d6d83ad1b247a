"""The primary is killed and its synchronous replica promoted: nothing is lost, done twice or cut off."""

import asyncio
import signal
from pathlib import Path

import pytest

from starling.infra.postgres.schema import upgrade
from tests.chaos.workload import Call
from tests.support.planned_runs import PlannedRuns, assert_whole, first_call, planned_runs
from tests.support.postgres_servers import ReplicatedPostgres

pytestmark = pytest.mark.timeout(180)


async def worker_of(runs: PlannedRuns, postgres: ReplicatedPostgres, run_id: str) -> int:
    query = f"SELECT split_part(worker, ':', 2)::int FROM runs WHERE id = '{run_id}'"  # noqa: S608 - ours
    pid = postgres.primary.value(query, "starling")
    return next(number for number, worker in enumerate(runs.workers) if worker.process.pid == pid)


async def test_runs_and_streams_go_on_with_the_promoted_replica(open_folder: Path) -> None:
    loop = asyncio.get_running_loop()
    with ReplicatedPostgres(open_folder) as postgres:
        await upgrade(postgres.url)
        async with planned_runs(open_folder, postgres.url, workers=2, runs_per_worker=1) as runs:
            kept = await runs.begin("kept", Call("charge", "after"))
            lost = await runs.begin("lost", Call("charge", "after"))
            streams = [loop.create_task(runs.read(run_id)) for run_id in (kept, lost)]
            for token in ("kept", "lost"):
                await runs.effects.until("done", first_call(token))
            doomed = runs.workers[await worker_of(runs, postgres, lost)]

            postgres.primary.kill()
            doomed.process.send_signal(signal.SIGKILL)
            refused, _ = await runs.request("GET", "/ready")
            for token in ("kept", "lost"):
                runs.effects.open(f"{first_call(token)}.gate")
            await asyncio.to_thread(postgres.promote)
            await runs.resolve(lost, "done")
            told = await asyncio.gather(*streams)
            await runs.until_ready()
            later = await runs.read(await runs.begin("later", Call("charge")))

    assert refused == 503
    for events in (*told, later):
        assert_whole(events)
    assert [len(runs.charges(token)) for token in ("kept", "lost", "later")] == [1, 1, 1]
