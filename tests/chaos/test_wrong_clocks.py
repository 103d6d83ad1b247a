"""Machines whose wall clocks are wrong by an hour, or step: nothing is lost, repeated, expired or taken over.

Time limits, leases and approvals count by the database's clock, or by clocks that don't step.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from time import time

import pytest

from tests.chaos.client_history import ClientHistory
from tests.chaos.clients import keep_busy
from tests.chaos.cluster import LIMITS, Cluster, open_cluster
from tests.chaos.invariants import violations
from tests.chaos.observations import Observations, collect
from tests.chaos.processes import ManagedService
from tests.chaos.report import described
from tests.support.gateway_harness import wait_for
from tests.support.versions import ROOT, Version
from tests.support.wrong_clock import WrongClock

HOUR = 3_600
RUNS, STEP_RUNS = 200, 20  # how many runs there are; after how many the clock that steps does
SECONDS = 1_500.0
EXPIRY_SECONDS = HOUR / 2
OWN_LIMITS = {"lease_seconds": 30, "run_seconds": 300, "interrupt_seconds": EXPIRY_SECONDS}
HELD = "SELECT FROM runs WHERE status = 'running' AND split_part(worker, ':', 2) = '{}'"
INTERRUPTS = "SELECT state, extract(epoch FROM expires_at)::float8 AS expires FROM interrupts"


@dataclass(frozen=True)
class Machine(Version):
    """This version on a machine with a clock of its own."""

    clock: WrongClock

    @property
    def variables(self) -> Mapping[str, str]:
        faked = self.clock.variables
        path = f"{faked['PYTHONPATH']}:{super().variables['PYTHONPATH']}"
        return {**faked, "PYTHONPATH": path, "STARLING_LIMITS": json.dumps(LIMITS | OWN_LIMITS)}


def machine(folder: Path, ahead: int) -> Machine:
    folder.mkdir()
    clock = WrongClock(folder)
    clock.set_ahead(ahead)
    return Machine(ROOT, clock)


async def load(cluster: Cluster, history: ClientHistory, stepping: WrongClock) -> str:
    """Have some hundred runs made, while a clock steps and after a third of them a worker is killed; return its name.

    It works on a run then.
    """
    stop, killed = asyncio.Event(), ""
    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as group:
        group.create_task(keep_busy(cluster, history, 4, stop))
        steps = cycle([2 * HOUR, -2 * HOUR, 0, 30, -30])
        for runs in range(STEP_RUNS, RUNS + 1, STEP_RUNS):
            await wait_for(lambda: len(history.accepted) >= runs, seconds=SECONDS)  # noqa: B023 - awaited here
            stepping.set_ahead(next(steps))
            if runs == RUNS // STEP_RUNS // 3 * STEP_RUNS:
                killed = await kill_at_work(cluster, cluster.workers[0])
        stop.set()
    return killed


async def kill_at_work(cluster: Cluster, worker: ManagedService) -> str:
    """Kill a worker that holds a run; return its name with the number of its start."""
    await worker.ready.wait()
    assert worker.process is not None
    while not await cluster.rows(HELD.format(worker.process.pid)):  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.01)
    name = f"{worker.name}.{worker.starts}"
    await worker.kill()
    return name


def taken_over(found: Observations) -> Iterator[tuple[str, str]]:
    """Yield each run that was taken from a process which had not handed it back: its id, and the process."""
    for run_id, changes in found.changes_of.items():
        holder = ""
        for change in changes:
            if change["new_fence"] > change["old_fence"]:
                if change["old_status"] == "running":
                    yield run_id, holder
                holder = change["app"]


@pytest.mark.soak
@pytest.mark.timeout(1_700)
async def test_wrong_and_stepping_clocks_of_machines_lose_repeat_expire_and_take_over_nothing(
    open_folder: Path,
) -> None:
    ahead, behind, stepping = (
        machine(open_folder / name, seconds) for name, seconds in (("ahead", HOUR), ("behind", -HOUR), ("steps", 0))
    )
    history, begun = ClientHistory(), time()

    async with open_cluster(open_folder, "native", (ahead, behind, stepping), started=3) as cluster:
        killed = await load(cluster, history, stepping.clock)
        await asyncio.gather(*(service.end() for service in cluster.services))
        interrupts = await cluster.rows(INTERRUPTS)
        found = await collect(cluster, history)

    violated = violations(found)
    assert not violated, described(violated, found)
    assert len(found.runs) >= RUNS
    assert {holder for _, holder in taken_over(found)} == {killed}
    assert {change["app"].partition(".")[0] for change in found.changes} >= {"worker-1", "worker-2", "worker-3"}
    assert {row["state"] for row in interrupts} == {"resolved", "cancelled"}
    assert [row for row in interrupts if not begun <= row["expires"] - EXPIRY_SECONDS <= time()] == []
    assert [event for event in found.events if event["data"].get("code") == "deadline_exceeded"] == []
