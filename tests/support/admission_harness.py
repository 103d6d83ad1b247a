"""Admission of runs to the queue, without a worker."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.events.run_events import Done, Usage
from starling.core.runs import RunResult
from starling.infra.postgres.runs.acceptance import Connection, RunKey, RunRepository
from starling.infra.postgres.runs.broadcast import Broadcast
from starling.infra.postgres.runs.busy_thread_policy import Policy
from starling.infra.postgres.runs.leases import Leases
from starling.infra.postgres.runs.writer import RunWriter
from tests.support.run_factories import claimed, new_run

CAP = 3


@dataclass
class AdmissionHarness:
    """Accepts, claims and ends runs, and records which of them were queued."""

    engine: AsyncEngine
    backlog: int = 10_000  # queued runs of a tenant
    graph_version: int = 1  # of its workers
    queued: list[RunKey] = field(default_factory=list[RunKey])

    def __post_init__(self) -> None:
        self.repository = RunRepository(self.engine, self._defer, cap=CAP, backlog=self.backlog)
        self.leases = Leases(self.engine, self._defer, self.repository.admit, graph_version=self.graph_version)

    async def _defer(self, connection: Connection, keys: Sequence[RunKey]) -> None:
        self.queued += keys

    async def accept(self, *, thread: str = "thread", tenant: str = "default", policy: Policy = "enqueue") -> RunKey:
        new = replace(new_run(thread=thread, tenant=tenant), policy=policy)
        await self.repository.accept(new)
        return new.key

    async def end(self, key: RunKey) -> None:
        writer = RunWriter(self.engine, await claimed(self.leases, key), Broadcast())
        result = RunResult(status="succeeded", reply="Done.")
        await writer.end(result, Done(usage=Usage(), status="succeeded", reply="Done."), self.repository)
        await writer.close()

    async def claims(self, key: RunKey) -> bool:
        return await self.leases.claim(key, worker="w", lease_seconds=60, run_seconds=60) is not None
