"""A platform on a restored Postgres: what the backup knows goes on, what it can't know is repeated under the same key.

The commands and settings are those of `docs/guides/postgres.md`.
"""

from pathlib import Path

import pytest

from starling.infra.postgres.schema import upgrade
from tests.chaos.workload import Call
from tests.support.backups import Take, dump, moment, source_of
from tests.support.planned_runs import PlannedRuns, assert_whole, first_call, planned_runs
from tests.support.postgres_servers import running

pytestmark = pytest.mark.timeout(180)


async def until_ended(runs: PlannedRuns, run_id: str) -> str:
    return (await runs.until(run_id, "succeeded", "failed", "cancelled"))["status"]


@pytest.mark.parametrize("take", [dump, moment])
async def test_restored_platform_ends_the_runs_of_the_backup(open_folder: Path, take: Take) -> None:
    backups = source_of(open_folder)
    with running(backups.source, backups.restored):
        await upgrade(backups.source.url())
        if take is moment:
            backups.run("pg_basebackup")
        async with planned_runs(open_folder, backups.source.url(), workers=1) as first:
            ended = await first.begin("ended", Call("charge"))
            assert await until_ended(first, ended) == "succeeded"
            sent = await first.begin("sent", Call("charge", "after"))
            later, stopped = [
                await first.begin(token, Call("read_it", "after"), Call("charge")) for token in ("later", "stopped")
            ]
            for token in ("sent", "later", "stopped"):
                await first.effects.until("done", first_call(token))
            restore = take(backups)
            first.effects.open(f"{first_call('later')}.gate")
            lost = await first.begin("lost", Call("charge"))
            assert [await until_ended(first, run_id) for run_id in (later, lost)] == ["succeeded"] * 2
        backups.source.execute("SELECT pg_switch_wal()")
        backups.source.stop()

        restore()
        async with planned_runs(open_folder, backups.restored.url()) as second:
            assert (await second.request("GET", f"/v1/runs/{lost}"))[0] == 404
            assert (await second.request("POST", f"/v1/runs/{stopped}/cancel"))[0] < 300
            held = [(await second.request("GET", f"/v1/runs/{run_id}"))[1]["status"] for run_id in (sent, later)]
            await second.start(("worker",))
            await second.resolve(sent, "done")
            streams = {run_id: await second.read(run_id) for run_id in (ended, sent, later, stopped)}

    assert held == ["running", "running"]
    for run_id, events in streams.items():
        assert_whole(events, "cancelled" if run_id == stopped else "succeeded")
    charges = {token: second.charges(token) for token in ("ended", "sent", "later", "stopped", "lost")}
    assert {token: len(keys) for token, keys in charges.items()} == {
        "ended": 1, "sent": 1, "later": 2, "stopped": 0, "lost": 1,
    }  # fmt: skip
    assert len(set(charges["later"])) == 1
