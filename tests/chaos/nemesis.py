"""Fault injection: a schedule of faults derived from a seed, and the faults themselves."""

import asyncio
import contextlib
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import psutil
import psycopg
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_fixed

from starling.core.principal import SHARED
from starling.infra.postgres.kill_switches import Target
from tests.chaos.admin import Administrator
from tests.chaos.cluster import EFFECT_SERVERS, LEASE_SECONDS, TENANTS, Cluster
from tests.chaos.processes import ManagedService
from tests.chaos.timing_guarantees import TimingGuarantees
from tests.chaos.workload import ARCHITECT, CLERKS, DESK, TILL, VAULT
from tests.support.model_script import Answer
from tests.support.postgres_servers import ReplicatedPostgres

_TERMINATE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE backend_type = 'client backend' AND application_name <> 'chaos' AND random() < {}"""
_BACKENDS = """
SELECT pid, application_name AS app FROM pg_stat_activity
WHERE backend_type = 'client backend' AND application_name <> 'chaos' ORDER BY app, pid"""
_FILL = (
    "UPDATE chaos.disk SET is_full = true",
    "ALTER SYSTEM SET temp_file_limit = 0",
    "SELECT pg_reload_conf()",
)
_EMPTY = (
    "UPDATE chaos.disk SET is_full = false",
    "ALTER SYSTEM RESET temp_file_limit",
    "SELECT pg_reload_conf()",
)
_READY_SECONDS = 30.0  # how long a fault waits for its target to be ready
_NOTICED_SECONDS = 5
_CHECKED_SECONDS = 1.5  # longer than a check whether Postgres takes writes counts
_LIMITED_SHARE = 0.5  # of the times when the model fails
_OWNERS = (*TENANTS, SHARED)
_AGENTS = (TILL, DESK, VAULT, CLERKS, ARCHITECT)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at a time (seconds from the start); `draws` (0 to 1) decide on target and duration."""

    at: float
    kind: str
    draws: tuple[float, float]


def schedule(seed: int, count: int, seconds: float, only: Sequence[str] = ()) -> list[Fault]:
    """Return the faults of a seed, at random times; every kind (of `only`, if given) occurs before one is repeated."""
    rng = random.Random(seed)
    among = only or list(KINDS)
    kinds: list[str] = []
    while len(kinds) < count:
        kinds += rng.sample(among, len(among))
    gaps = [rng.uniform(0.4, 1.6) for _ in range(count)]
    stretch = seconds / sum(gaps)
    return [
        Fault(sum(gaps[: number + 1]) * stretch, kind, (rng.random(), rng.random()))
        for number, kind in enumerate(kinds[:count])
    ]


@dataclass(slots=True)
class Nemesis:
    """Injects scheduled faults. They may overlap, but only one at a time affects Postgres or a given service."""

    cluster: Cluster
    admin: Administrator
    guarantees: TimingGuarantees
    verbose: bool = False
    done: Counter[str] = field(default_factory=Counter[str])
    log: list[str] = field(default_factory=list[str])
    _begun: float = field(default_factory=monotonic)
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict[str, asyncio.Lock])

    async def inject(self, faults: Sequence[Fault]) -> None:
        """Inject all faults, each at its time; at the end everything stopped or frozen has been continued."""
        self._begun = monotonic()
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                await asyncio.sleep(max(0.0, fault.at - (monotonic() - self._begun)))
                group.create_task(self._do(fault), name=fault.kind)

    async def _do(self, fault: Fault) -> None:
        await REPLICATED_KINDS[fault.kind](self, fault)
        self.done[fault.kind] += 1

    def _log(self, what: str) -> None:
        self.log.append(f"{monotonic() - self._begun:7.1f} s  {what}")
        if self.verbose:
            print(self.log[-1], flush=True)

    async def _kill(self, services: Sequence[ManagedService], fault: Fault) -> None:
        service = self._chosen(services, fault)
        async with self._lock(service.name):
            await _readiness(service)
            self._log(f"kill -9 {service.name}")
            await service.kill()

    async def _stop(self, services: Sequence[ManagedService], fault: Fault) -> None:
        """Stop a service with SIGSTOP for 0.2 to 2 lease times, then continue it."""
        service = self._chosen(services, fault)
        seconds = LEASE_SECONDS * (0.2 + 1.8 * fault.draws[1])
        async with self._lock(service.name):
            await _readiness(service)
            self._log(f"stop {service.name} for {seconds:.1f} s")
            with self.guarantees.disturbed():
                service.pause()
                try:
                    await asyncio.sleep(seconds)
                finally:
                    service.resume()

    async def _drain(self, services: Sequence[ManagedService], fault: Fault) -> None:
        """Shut a service down gracefully, as for an upgrade."""
        service = self._chosen(services, fault)
        async with self._lock(service.name):
            await _readiness(service)
            self._log(f"end {service.name}")
            await service.stop()

    async def restart_all(self, _: Fault) -> None:
        """Shut all services down gracefully, one after the other, as a rollout does."""
        self._log("restart all services")
        for service in self.cluster.services:
            async with self._lock(service.name):
                await _readiness(service)
                await service.stop()
                await _readiness(service)

    async def kill_server(self, fault: Fault) -> None:
        """Kill one of the MCP server processes of a worker, if there is one."""
        worker = self._chosen(self.cluster.workers, fault)
        async with self._lock(worker.name):
            await _readiness(worker)
            family = worker.family()
            if family:
                victim = family[int(fault.draws[1] * len(family))]
                self._log(f"kill -9 of {worker.name}'s process {victim.pid}")
                _send(victim, signal.SIGKILL)

    async def restart_postgres(self, _: Fault) -> None:
        async with self._postgres():
            self._log("restart Postgres")
            await asyncio.to_thread(self.cluster.postgres.stop)
            self.cluster.postgres.start()

    async def crash_postgres(self, fault: Fault) -> None:
        """Crash Postgres; start it again within two lease times."""
        async with self._postgres():
            self._log("crash Postgres")
            os.kill(self.cluster.postgres.pid, signal.SIGQUIT)
            await asyncio.to_thread(psutil.wait_procs, [psutil.Process(self.cluster.postgres.pid)])
            await asyncio.sleep(2 * LEASE_SECONDS * fault.draws[0] * fault.draws[1])
            self.cluster.postgres.start()

    async def freeze_postgres(self, fault: Fault) -> None:
        seconds = LEASE_SECONDS * (0.2 + 1.8 * fault.draws[0])
        async with self._postgres():
            self._log(f"freeze Postgres for {seconds:.1f} s")
            frozen = _signalled(self.cluster.postgres.pid)
            try:
                await asyncio.sleep(seconds)
            finally:
                for process in reversed(frozen):
                    _send(process, signal.SIGCONT)

    async def fill_disk(self, fault: Fault) -> None:
        """Have Postgres refuse rows and temporary files as with a full disk, for up to two lease times."""
        seconds = LEASE_SECONDS * (0.2 + 1.8 * fault.draws[0])
        async with self._postgres():
            self._log(f"the disk of Postgres is full for {seconds:.1f} s")
            for statement in _FILL:
                await self._look(statement)
            try:
                await asyncio.sleep(seconds)
                if seconds > _CHECKED_SECONDS:
                    await self.admin.check_unready()
            finally:
                for statement in _EMPTY:
                    await self._look(statement)

    async def fail_model(self, fault: Fault) -> None:
        """Have the model refuse every request for 0.5 to 4 s: with 429 and the time that is left, or with 500."""
        seconds = 0.5 + 3.5 * fault.draws[0]
        limited = Answer(status=429, body="{}", headers={"Retry-After": f"{seconds:.0f}"})
        failure = limited if fault.draws[1] < _LIMITED_SHARE else Answer(status=500, body="{}")
        async with self._lock("model"):
            self._log(f"the model answers {failure.status} for {seconds:.1f} s")
            self.cluster.endpoint.failure = failure
            try:
                await asyncio.sleep(seconds)
            finally:
                self.cluster.endpoint.failure = None

    async def kill_backend(self, fault: Fault) -> None:
        """Kill one backend; Postgres then ends all others and recovers."""
        async with self._postgres():
            backends = await self._look(_BACKENDS)
            if backends:
                victim = backends[int(fault.draws[0] * len(backends))]
                self._log(f"kill -9 of the backend of {victim['app']}")
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim["pid"], signal.SIGKILL)
                    await self._noticed()

    async def fail_over(self, _: Fault) -> None:
        """Kill the primary and promote its replica; then the former primary becomes the replica of the new one."""
        postgres = self.cluster.postgres
        assert isinstance(postgres, ReplicatedPostgres)
        async with self._postgres():
            self._log("kill -9 of the primary, and promotion of its replica")
            await asyncio.to_thread(postgres.fail_over)
            await asyncio.to_thread(postgres.rewind)
            postgres.follow()
            self._log("the former primary is the replica")

    async def _noticed(self) -> None:
        """Wait until Postgres has ended all backends, including ours, and accepts connections again."""
        with contextlib.suppress(psycopg.OperationalError):
            await self.cluster.rows(f"SELECT pg_sleep({_NOTICED_SECONDS})")
        await self._look("SELECT")

    async def _terminate(self, share: float) -> None:
        async with self._postgres():
            self._log("terminate all backends" if share >= 1 else "terminate every other backend")
            await self._look(_TERMINATE.format(share))

    async def _look(self, query: str) -> Sequence[Mapping[str, Any]]:
        """Run a query, with retries while Postgres recovers."""
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(psycopg.OperationalError),
            stop=stop_after_delay(_READY_SECONDS),
            wait=wait_fixed(0.1),
            reraise=True,
        )
        return await retrying(self.cluster.rows, query)

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    @contextlib.asynccontextmanager
    async def _postgres(self) -> AsyncGenerator[None]:
        async with self._lock("postgres"):
            with self.guarantees.disturbed():
                yield

    def _chosen(self, services: Sequence[ManagedService], fault: Fault) -> ManagedService:
        """Return a ready service without a current fault; if there is none, any service."""
        at_hand = [item for item in services if item.ready.is_set() and not self._lock(item.name).locked()]
        among = at_hand or services
        return among[int(fault.draws[0] * len(among))]

    async def _switch_off(self, target: Target) -> None:
        """Switch a target off for a while, one fault at a time."""
        async with self._lock(str(target)):
            self._log(f"switch off {target}")
            await self.admin.switch_off(target)
            self._log(f"switch on {target}")

    async def kill_worker(self, fault: Fault) -> None:
        await self._kill(self.cluster.workers, fault)

    async def kill_api(self, fault: Fault) -> None:
        await self._kill(self.cluster.apis, fault)

    async def drain_worker(self, fault: Fault) -> None:
        await self._drain(self.cluster.workers, fault)

    async def drain_api(self, fault: Fault) -> None:
        await self._drain(self.cluster.apis, fault)

    async def stop_worker(self, fault: Fault) -> None:
        await self._stop(self.cluster.workers, fault)

    async def stop_api(self, fault: Fault) -> None:
        await self._stop(self.cluster.apis, fault)

    async def terminate_all(self, _: Fault) -> None:
        await self._terminate(1.0)

    async def terminate_some(self, _: Fault) -> None:
        await self._terminate(0.5)

    async def switch_off_tenant(self, fault: Fault) -> None:
        await self._switch_off(Target("tenant", _one(TENANTS, fault.draws[0])))

    async def switch_off_server(self, fault: Fault) -> None:
        await self._switch_off(Target("server", _one(EFFECT_SERVERS, fault.draws[0]), _one(_OWNERS, fault.draws[1])))

    async def switch_off_agent(self, fault: Fault) -> None:
        await self._switch_off(Target("agent", _one(_AGENTS, fault.draws[0]), _one(_OWNERS, fault.draws[1])))

    async def revoke_key(self, fault: Fault) -> None:
        tenant = _one(TENANTS, fault.draws[0])
        async with self._lock(f"key of {tenant}"):
            self._log(f"revoke the key of {tenant}")
            await self.admin.revoke(tenant)

    async def prune(self, _: Fault) -> None:
        self._log(f"pruned {await self.admin.prune()} rows")


KINDS: dict[str, Callable[[Nemesis, Fault], Awaitable[None]]] = {
    "worker killed": Nemesis.kill_worker,
    "API killed": Nemesis.kill_api,
    "worker drained": Nemesis.drain_worker,
    "API drained": Nemesis.drain_api,
    "worker stopped": Nemesis.stop_worker,
    "API stopped": Nemesis.stop_api,
    "MCP server killed": Nemesis.kill_server,
    "Postgres restarted": Nemesis.restart_postgres,
    "Postgres crashed": Nemesis.crash_postgres,
    "Postgres frozen": Nemesis.freeze_postgres,
    "disk full": Nemesis.fill_disk,
    "model failing": Nemesis.fail_model,
    "all restarted": Nemesis.restart_all,
    "backend killed": Nemesis.kill_backend,
    "all backends terminated": Nemesis.terminate_all,
    "some backends terminated": Nemesis.terminate_some,
    "tenant switched off": Nemesis.switch_off_tenant,
    "server switched off": Nemesis.switch_off_server,
    "agent switched off": Nemesis.switch_off_agent,
    "key revoked": Nemesis.revoke_key,
    "pruned": Nemesis.prune,
}
FAILOVER = "primary killed"
REPLICATED_KINDS = {**KINDS, FAILOVER: Nemesis.fail_over}
"""The kinds of faults of a replicated Postgres."""


def _one(names: Sequence[str], rng: float) -> str:
    return names[int(rng * len(names))]


async def _readiness(service: ManagedService) -> None:
    """Wait for a restarting service to be ready, up to a limit."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(service.ready.wait(), _READY_SECONDS)


def _signalled(postmaster: int) -> list[psutil.Process]:
    """Freeze Postgres: the postmaster first, so that it starts no more backends."""
    root = psutil.Process(postmaster)
    root.send_signal(signal.SIGSTOP)
    children = root.children()
    for child in children:
        _send(child, signal.SIGSTOP)
    return [root, *children]


def _send(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)
