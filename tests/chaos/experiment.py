"""One chaos experiment: start, load, inject faults, heal, check the invariants."""

import asyncio
import contextlib
import random
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from tests.chaos.admin import Administrator
from tests.chaos.api_client import ApiClient
from tests.chaos.approvers import Approver
from tests.chaos.client_history import ClientHistory, Reading, Violation
from tests.chaos.clients import Clients
from tests.chaos.cluster import TENANTS, Cluster, embedded, open_cluster, replicated
from tests.chaos.invariants import violations
from tests.chaos.nemesis import Nemesis, schedule
from tests.chaos.observations import Observations, collect
from tests.chaos.pollers import TenantPoller
from tests.chaos.processes import all_ready
from tests.chaos.timing_guarantees import TimingGuarantees

_WARM_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class ExperimentPlan:
    """Number of faults, their duration in seconds, and the time allowed for healing."""

    seed: int
    faults: int
    seconds: float
    callers: int = 5  # of each tenant
    only: Sequence[str] = ()  # kinds of faults; empty: all
    team_runtime: str = "native"
    replicated: bool = False  # Postgres has a synchronous replica, which is promoted when the primary is killed
    verbose: bool = False  # print faults as they happen
    healing_seconds: float = 180.0
    prune_age: float = (
        60.0  # seconds from the end of a run until it may be pruned; by then no client retries its request
    )


@dataclass(frozen=True, slots=True)
class ExperimentResult:
    """Everything that the report needs."""

    plan: ExperimentPlan
    nemesis: Nemesis
    observations: Observations
    restarts: Sequence[float]  # seconds from the end of a killed service until it was ready again
    took: Mapping[str, float]  # seconds by phase
    violations: Sequence[Violation]


class Stopwatch:
    """Measures the phases of an experiment."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._since = monotonic()

    def lap(self, name: str) -> None:
        """Record the seconds since the last lap."""
        now = monotonic()
        self.laps[name] = now - self._since
        self._since = now


async def run_experiment(plan: ExperimentPlan, folder: Path) -> ExperimentResult:
    """Run an experiment in `folder`, which every user may enter."""
    history = ClientHistory(guarantees=TimingGuarantees(prune_age=plan.prune_age))
    watch = Stopwatch()
    server = replicated if plan.replicated else embedded
    async with open_cluster(folder, plan.team_runtime, postgres=server) as cluster:
        watch.lap("start")
        admin = Administrator.of(cluster, history)
        nemesis = Nemesis(cluster, admin, history.guarantees, plan.verbose)
        await _run(plan, cluster, history, nemesis, watch)
        await admin.engine.dispose()
        await asyncio.gather(*(service.end() for service in cluster.services))
        for process in await asyncio.to_thread(cluster.left_over):
            history.add_violation("no process is left", f"{process.pid} {process.name()} outlived all services")
        watch.lap("stop")
        observations = await collect(cluster, history)
    found = violations(observations)
    watch.lap("judge")
    restarts = [seconds for service in cluster.services for seconds in service.restarts]
    return ExperimentResult(plan, nemesis, observations, restarts, watch.laps, found)


async def _readiness(cluster: Cluster, history: ClientHistory, seconds: float) -> None:
    """Wait until all services are ready again."""
    try:
        await asyncio.wait_for(all_ready(cluster.services), seconds)
    except TimeoutError:
        away = [service.name for service in cluster.services if not service.ready.is_set()]
        history.add_violation("services come back", f"{', '.join(away)} didn't become ready within {seconds:.0f} s")


async def _run(
    plan: ExperimentPlan, cluster: Cluster, history: ClientHistory, nemesis: Nemesis, watch: Stopwatch
) -> None:
    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(_api_client(plan, cluster, history, tenant)) for tenant in TENANTS]
        group = await stack.enter_async_context(asyncio.TaskGroup())
        tasks = [group.create_task(activity) for api in clients for activity in _activities(plan, api, stop)]
        endless = [group.create_task(Approver(api).answer()) for api in clients]
        endless.append(group.create_task(history.guarantees.watch_for_delays()))
        await asyncio.sleep(_WARM_SECONDS)
        await nemesis.inject(schedule(plan.seed, plan.faults, plan.seconds, plan.only))
        watch.lap("break")
        stop.set()
        await _readiness(cluster, history, plan.healing_seconds)
        _, late = await asyncio.wait(tasks, timeout=plan.healing_seconds)
        for task in (*late, *endless):
            task.cancel()
        with contextlib.suppress(TimeoutError):  # unfinished readers are found by an invariant
            await asyncio.wait_for(_finish(nemesis.admin, clients), plan.healing_seconds)
    watch.lap("heal")


def _api_client(
    plan: ExperimentPlan, cluster: Cluster, history: ClientHistory, tenant: str
) -> AbstractAsyncContextManager[ApiClient]:
    return ApiClient.of(cluster, history, tenant, random.Random(f"{plan.seed} {tenant}"))


def _activities(plan: ExperimentPlan, api: ApiClient, stop: asyncio.Event) -> Iterator[Coroutine[Any, Any, None]]:
    poller = TenantPoller(api)
    yield Clients(api, plan.callers).call(stop)
    yield poller.poll_own_runs(stop)
    yield poller.try_foreign_runs(stop)


async def _finish(admin: Administrator, clients: Sequence[ApiClient]) -> None:
    """After healing: prune, read the first run of each tenant again, and send one more request."""
    await admin.prune()
    for api in clients:
        own = [run.run_id for run in api.history.accepted.values() if run.tenant == api.tenant]
        await asyncio.gather(*(Clients(api).read(Reading(run_id, "a late reader")) for run_id in own[:1]))
    await asyncio.gather(*(Clients(api).send_final_request() for api in clients))
