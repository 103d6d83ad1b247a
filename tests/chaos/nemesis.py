"""The one who breaks things: a schedule of faults that a seed decides, and what each of them does."""

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
from tests.chaos.admin import Admin
from tests.chaos.processes import Service
from tests.chaos.promises import Promises
from tests.chaos.town import LEASE_SECONDS, SERVERS_OF_TOWN, TENANTS, Town

_TERMINATE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE backend_type = 'client backend' AND application_name <> 'chaos' AND random() < {}"""
_BACKENDS = """
SELECT pid, application_name AS app FROM pg_stat_activity
WHERE backend_type = 'client backend' AND application_name <> 'chaos' ORDER BY app, pid"""
_READY_SECONDS = 30.0  # that a fault waits for its target to be there
_NOTICED_SECONDS = 5
_OWNERS = (*TENANTS, SHARED)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at a time (seconds from the start); `dice` (0 to 1) decide on target and length."""

    at: float
    kind: str
    dice: tuple[float, float]


def schedule(seed: int, count: int, seconds: float, only: Sequence[str] = ()) -> list[Fault]:
    """Return the faults of a seed, of all kinds or `only` some: each comes before one comes again, unevenly in time."""
    dice = random.Random(seed)
    among = only or list(KINDS)
    kinds: list[str] = []
    while len(kinds) < count:
        kinds += dice.sample(among, len(among))
    gaps = [dice.uniform(0.4, 1.6) for _ in range(count)]
    stretch = seconds / sum(gaps)
    return [
        Fault(sum(gaps[: number + 1]) * stretch, kind, (dice.random(), dice.random()))
        for number, kind in enumerate(kinds[:count])
    ]


@dataclass(slots=True)
class Nemesis:
    """Does what is scheduled. Faults may overlap, but Postgres has one at a time, and so has each service."""

    town: Town
    admin: Admin
    promises: Promises
    aloud: bool = False
    done: Counter[str] = field(default_factory=Counter[str])
    told: list[str] = field(default_factory=list[str])
    _begun: float = field(default_factory=monotonic)
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict[str, asyncio.Lock])

    async def rage(self, faults: Sequence[Fault]) -> None:
        """Do all faults, each at its time; afterwards everything that was stopped or frozen goes on."""
        self._begun = monotonic()
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                await asyncio.sleep(max(0.0, fault.at - (monotonic() - self._begun)))
                group.create_task(self._do(fault), name=fault.kind)

    async def _do(self, fault: Fault) -> None:
        await KINDS[fault.kind](self, fault)
        self.done[fault.kind] += 1

    def _tell(self, what: str) -> None:
        self.told.append(f"{monotonic() - self._begun:7.1f} s  {what}")
        if self.aloud:
            print(self.told[-1], flush=True)

    async def _kill(self, services: Sequence[Service], fault: Fault) -> None:
        service = self._chosen(services, fault)
        async with self._lock(service.name):
            await _readiness(service)
            self._tell(f"kill -9 {service.name}")
            await service.kill()

    async def _stop(self, services: Sequence[Service], fault: Fault) -> None:
        """Stop a service for a fifth of a lease to twice as long, then let it go on."""
        service = self._chosen(services, fault)
        seconds = LEASE_SECONDS * (0.2 + 1.8 * fault.dice[1])
        async with self._lock(service.name):
            await _readiness(service)
            self._tell(f"stop {service.name} for {seconds:.1f} s")
            with self.promises.disturbed():
                service.pause()
                try:
                    await asyncio.sleep(seconds)
                finally:
                    service.go_on()

    async def _drain(self, services: Sequence[Service], fault: Fault) -> None:
        """Tell a service to stop, as at an upgrade."""
        service = self._chosen(services, fault)
        async with self._lock(service.name):
            await _readiness(service)
            self._tell(f"end {service.name}")
            await service.stop()

    async def kill_server(self, fault: Fault) -> None:
        """Kill one of the MCP servers that a worker has open, if it has any."""
        worker = self._chosen(self.town.workers, fault)
        async with self._lock(worker.name):
            await _readiness(worker)
            family = worker.family()
            if family:
                victim = family[int(fault.dice[1] * len(family))]
                self._tell(f"kill -9 of {worker.name}'s process {victim.pid}")
                _send(victim, signal.SIGKILL)

    async def restart_postgres(self, _: Fault) -> None:
        async with self._postgres():
            self._tell("restart Postgres")
            await asyncio.to_thread(self.town.postgres.stop)
            self.town.postgres.start()

    async def crash_postgres(self, fault: Fault) -> None:
        """End Postgres without a shutdown; it comes back after up to two leases."""
        async with self._postgres():
            self._tell("crash Postgres")
            os.kill(self.town.postgres.pid, signal.SIGQUIT)
            await asyncio.to_thread(psutil.wait_procs, [psutil.Process(self.town.postgres.pid)])
            await asyncio.sleep(2 * LEASE_SECONDS * fault.dice[0] * fault.dice[1])
            self.town.postgres.start()

    async def freeze_postgres(self, fault: Fault) -> None:
        seconds = LEASE_SECONDS * (0.2 + 1.8 * fault.dice[0])
        async with self._postgres():
            self._tell(f"freeze Postgres for {seconds:.1f} s")
            frozen = _signalled(self.town.postgres.pid)
            try:
                await asyncio.sleep(seconds)
            finally:
                for process in reversed(frozen):
                    _send(process, signal.SIGCONT)

    async def kill_backend(self, fault: Fault) -> None:
        """Kill one backend, upon which Postgres ends all others and recovers by itself."""
        async with self._postgres():
            backends = await self._look(_BACKENDS)
            if backends:
                victim = backends[int(fault.dice[0] * len(backends))]
                self._tell(f"kill -9 of the backend of {victim['app']}")
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim["pid"], signal.SIGKILL)
                    await self._noticed()

    async def _noticed(self) -> None:
        """Wait until Postgres has ended all backends, ours among them, and serves again."""
        with contextlib.suppress(psycopg.OperationalError):
            await self.town.rows(f"SELECT pg_sleep({_NOTICED_SECONDS})")
        await self._look("SELECT")

    async def _terminate(self, share: float) -> None:
        async with self._postgres():
            self._tell("terminate all backends" if share >= 1 else "terminate every other backend")
            await self._look(_TERMINATE.format(share))

    async def _look(self, query: str) -> Sequence[Mapping[str, Any]]:
        """Ask Postgres, which may still be recovering."""
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(psycopg.OperationalError),
            stop=stop_after_delay(_READY_SECONDS),
            wait=wait_fixed(0.1),
            reraise=True,
        )
        return await retrying(self.town.rows, query)

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    @contextlib.asynccontextmanager
    async def _postgres(self) -> AsyncGenerator[None]:
        async with self._lock("postgres"):
            with self.promises.disturbed():
                yield

    def _chosen(self, services: Sequence[Service], fault: Fault) -> Service:
        """Return one of those that nothing happens to just now; where there is none, one that has to come back."""
        at_hand = [item for item in services if item.ready.is_set() and not self._lock(item.name).locked()]
        among = at_hand or services
        return among[int(fault.dice[0] * len(among))]

    async def _switch_off(self, target: Target) -> None:
        """Switch something off for a while, if it isn't."""
        async with self._lock(str(target)):
            self._tell(f"switch off {target}")
            await self.admin.switch_off(target)
            self._tell(f"switch on {target}")

    async def kill_worker(self, fault: Fault) -> None:
        await self._kill(self.town.workers, fault)

    async def kill_api(self, fault: Fault) -> None:
        await self._kill(self.town.apis, fault)

    async def drain_worker(self, fault: Fault) -> None:
        await self._drain(self.town.workers, fault)

    async def drain_api(self, fault: Fault) -> None:
        await self._drain(self.town.apis, fault)

    async def stop_worker(self, fault: Fault) -> None:
        await self._stop(self.town.workers, fault)

    async def stop_api(self, fault: Fault) -> None:
        await self._stop(self.town.apis, fault)

    async def terminate_all(self, _: Fault) -> None:
        await self._terminate(1.0)

    async def terminate_some(self, _: Fault) -> None:
        await self._terminate(0.5)

    async def switch_off_tenant(self, fault: Fault) -> None:
        await self._switch_off(Target("tenant", _one(TENANTS, fault.dice[0])))

    async def switch_off_server(self, fault: Fault) -> None:
        await self._switch_off(Target("server", _one(SERVERS_OF_TOWN, fault.dice[0]), _one(_OWNERS, fault.dice[1])))

    async def switch_off_agent(self, fault: Fault) -> None:
        agent = f"mcp_agent_{_one(SERVERS_OF_TOWN, fault.dice[0])}"
        await self._switch_off(Target("agent", agent, _one(_OWNERS, fault.dice[1])))

    async def revoke_key(self, fault: Fault) -> None:
        tenant = _one(TENANTS, fault.dice[0])
        async with self._lock(f"key of {tenant}"):
            self._tell(f"revoke the key of {tenant}")
            await self.admin.revoke(tenant)

    async def prune(self, _: Fault) -> None:
        self._tell(f"pruned {await self.admin.prune()} rows")


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
    "backend killed": Nemesis.kill_backend,
    "all backends terminated": Nemesis.terminate_all,
    "some backends terminated": Nemesis.terminate_some,
    "tenant switched off": Nemesis.switch_off_tenant,
    "server switched off": Nemesis.switch_off_server,
    "agent switched off": Nemesis.switch_off_agent,
    "key revoked": Nemesis.revoke_key,
    "pruned": Nemesis.prune,
}


def _one(names: Sequence[str], dice: float) -> str:
    return names[int(dice * len(names))]


async def _readiness(service: Service) -> None:
    """Wait for a service that starts again; a fault that finds it still starting meets that."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(service.ready.wait(), _READY_SECONDS)


def _signalled(postmaster: int) -> list[psutil.Process]:
    """Freeze a Postgres: the postmaster first, so that nothing is begun any more."""
    root = psutil.Process(postmaster)
    root.send_signal(signal.SIGSTOP)
    children = root.children()
    for child in children:
        _send(child, signal.SIGSTOP)
    return [root, *children]


def _send(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)
