"""A rollout under load: processes of the former and of this version side by side on one database.

Pair 1 of the cluster, an API and a worker, is of the former version, pair 2 of this one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.chaos.client_history import ClientHistory
from tests.chaos.clients import keep_busy
from tests.chaos.cluster import Cluster, open_cluster
from tests.chaos.observations import Observations, Row, collect, grouped
from tests.chaos.processes import ManagedService, all_ready, supervised
from tests.support.gateway_harness import wait_for
from tests.support.versions import THIS, Version

_SECONDS = 120.0  # within which something has to happen that usually takes less than two
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Course:
    """Which process accepted a run, and which ones executed it, in order; without numbers of starts."""

    accepted: str
    workers: Sequence[str]

    def went(self, before: str, after: str) -> bool:
        """Return whether a worker began the run, or a part of it, that the other one went on with."""
        return (before, after) in pairwise(self.workers)


def courses(changes: Sequence[Row]) -> list[Course]:
    """Return the course of each run."""
    return [
        Course(_service(own[0]), [_service(change) for change in own if change["new_fence"] > change["old_fence"]])
        for own in grouped(changes).values()
    ]


def _service(change: Row) -> str:
    return change["app"].partition(".")[0]


async def roll_out(old: Version, folder: Path, *, callers: int, returns: int = 1) -> Observations:
    """Replace `old` by this version under load, in `folder`, which every user may enter.

    There are `callers` callers of each tenant. The new worker is restarted `returns` times while the old one runs,
    which is restarted once before it ends.
    """
    history = ClientHistory()
    async with open_cluster(folder, "native", (old, THIS), started=1) as cluster, asyncio.TaskGroup() as group:
        (_, new_api), (old_worker, new_worker) = cluster.apis, cluster.workers
        next_worker = "worker-1" if old.graph_version == THIS.graph_version else "worker-2"  # of a run that this began
        stop = asyncio.Event()
        load = group.create_task(keep_busy(cluster, history, callers, stop))
        await _until(cluster, lambda found: len(found) > callers)
        await THIS.upgrade(cluster.postgres.url, folder)
        async with supervised((new_api, new_worker)):
            await all_ready((new_api, new_worker))
            await _until(cluster, _both_ways)
            for _ in range(returns):
                await _leave_in_a_call(cluster, new_worker, new_worker.stop)
                await _until(cluster, lambda found: any(course.went("worker-2", next_worker) for course in found))
                await all_ready((new_worker,))
            for leave in (old_worker.stop, old_worker.end):  # the run of the last call may be cancelled by its client
                await _leave_in_a_call(cluster, old_worker, leave)
                await _until(cluster, lambda found: any(course.went("worker-1", "worker-2") for course in found))
            await _leave_in_a_stream(cluster.addresses[0], history, cluster.apis[0])
            stop.set()
            await load
        return await collect(cluster, history)


def _both_ways(found: Sequence[Course]) -> bool:
    """Whether each worker has executed a run that the API of the other version accepted."""
    crossed = {(course.accepted, worker) for course in found for worker in course.workers}
    return {("api-1", "worker-2"), ("api-2", "worker-1")} <= crossed


async def _leave_in_a_call(cluster: Cluster, worker: ManagedService, leave: Callable[[], Awaitable[None]]) -> None:
    """Stop a worker with `leave` while a server that it started is in the middle of a call, after which a run goes on.

    The run of a single call doesn't: it ends with the call, so that no other worker goes on with it.
    """
    await wait_for(lambda: _in_a_call(cluster, {process.pid for process in worker.family()}), seconds=_SECONDS)
    await leave()


def _in_a_call(cluster: Cluster, servers: Collection[int]) -> bool:
    open_calls: set[str] = set()
    for line in (line for line in cluster.effects() if line["pid"] in servers and ".call." not in line["what"]):
        (open_calls.add if line["at"] == "arrived" else open_calls.discard)(line["what"])
    return bool(open_calls)


async def _leave_in_a_stream(address: str, history: ClientHistory, api: ManagedService) -> None:
    """End an API while it streams to somebody."""
    await wait_for(lambda: history.guarantees.streams_at(address) > 0, seconds=_SECONDS)
    await api.end()


async def _until(cluster: Cluster, happened: Callable[[Sequence[Course]], bool]) -> None:
    """Wait until the courses of the runs satisfy `happened`."""
    async with asyncio.timeout(_SECONDS), cluster.connected() as connection:
        while True:
            changes = await connection.execute("SELECT * FROM chaos.changes ORDER BY n")
            if happened(courses(await changes.fetchall())):
                return
            await asyncio.sleep(_LOOK_SECONDS)
