"""A run whose events a test writes, as the worker that holds its lease would."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starling.app.services import Services
from starling.core.events.run_events import Done, Thinking, Usage
from starling.core.runs import RunResult
from starling.infra.postgres.runs.acceptance import RunRepository
from starling.infra.postgres.runs.interrupts import StoredInterrupt, insert_interrupts
from starling.infra.postgres.runs.leases import Leases
from starling.infra.postgres.runs.writer import RunWriter
from tests.support.run_factories import claimed, defer_nothing, new_run

_LEASE_SECONDS = 600


@dataclass(frozen=True, slots=True)
class WrittenRun:
    """A running run and its writer."""

    writer: RunWriter
    repository: RunRepository

    @property
    def id(self) -> str:
        return self.writer.run.id

    async def say(self, *texts: str) -> None:
        """Write pieces of the answer."""
        for text in texts:
            self.writer.emit(Thinking(content=text, message_id="m"))
        await self.writer.flush()

    async def ask(self, *asked: StoredInterrupt) -> None:
        """Store interrupts that wait for an answer."""
        run = self.writer.run
        self.writer.add(lambda: insert_interrupts(run.thread_id, run.branch_id, asked))
        await self.writer.flush()

    async def end(self, reply: str = "Done.") -> None:
        result = RunResult(status="succeeded", reply=reply)
        await self.writer.end(result, Done(usage=Usage(), status="succeeded", reply=reply), self.repository)


@asynccontextmanager
async def written_run(services: Services, *, thread: str) -> AsyncGenerator[WrittenRun]:
    """Accept a run and hold its lease during the block."""
    engine = services.storage.engine
    repository = RunRepository(engine, defer_nothing, cap=100)
    new = new_run(thread=thread)
    await repository.accept(new)
    leases = Leases(engine, defer_nothing, repository.admit, graph_version=1)
    claim = await claimed(leases, new.key, lease_seconds=_LEASE_SECONDS)
    writer = RunWriter(engine, claim, services.storage.broadcast)
    try:
        yield WrittenRun(writer, repository)
    finally:
        await writer.close()
