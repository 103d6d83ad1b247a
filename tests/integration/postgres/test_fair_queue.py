"""Jobs are fetched in turns between tenants, and no tenant takes all slots of a worker."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.app.runs.acceptance import RunRequest
from starling.infra.postgres.engine import transaction
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.queue import run_queue
from starling.infra.queue.run_queue import RunQueue
from tests.support.model_server import ModelServer
from tests.support.platform import CALLER, ScriptedModel, decision, open_platform
from tests.support.run_factories import new_run
from tests.support.run_queues import open_queue
from tests.support.worker_runtime import running_worker

SECONDS = 60


@pytest.fixture(autouse=True)
def polling_is_too_slow_to_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_queue, "_FETCH_SECONDS", 10 * SECONDS)


@dataclass
class EndedInOrder:
    """A handler that ends each run when `end` is called, and names the tenants in the order of their starts."""

    started: asyncio.Queue[str] = field(default_factory=asyncio.Queue[str])
    ends: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    async def take(self, key: RunKey) -> None:
        self.started.put_nowait(key.tenant)
        await self.ends.acquire()

    async def order(self, count: int) -> str:
        """Return the tenants of the next `count` runs, each of which ends once it has started."""
        names = ""
        for _ in range(count):
            names += await self.started.get()
            self.ends.release()
        return names


async def test_tenant_that_came_last_is_served_in_turns_with_one_that_has_many_queued_runs(
    database_url: str, engine: AsyncEngine
) -> None:
    runs = EndedInOrder()
    async with asyncio.timeout(SECONDS), open_queue(database_url) as queue:
        await defer(queue, engine, "aaaaabb")

        async with working(queue, runs, concurrency=1, per_tenant=1):
            assert await runs.order(7) == "abababa"[:4] + "aaa"


async def test_slot_beyond_a_tenants_share_goes_to_another_tenant_at_once(
    database_url: str, engine: AsyncEngine
) -> None:
    runs = EndedInOrder()
    async with asyncio.timeout(SECONDS), open_queue(database_url) as queue:
        await defer(queue, engine, "aaaa")
        async with working(queue, runs, concurrency=3, per_tenant=2):
            first = await runs.started.get() + await runs.started.get()
            await defer(queue, engine, "b")

            assert (first, await runs.started.get()) == ("aa", "b")


async def test_run_of_a_tenant_at_its_limit_starts_when_one_of_its_runs_has_ended(
    database_url: str, engine: AsyncEngine
) -> None:
    runs = EndedInOrder()
    async with asyncio.timeout(SECONDS), open_queue(database_url) as queue:
        await defer(queue, engine, "aa")

        async with working(queue, runs, concurrency=2, per_tenant=1):
            assert await runs.order(2) == "aa"


async def test_two_workers_serve_the_tenants_in_turns_together(database_url: str, engine: AsyncEngine) -> None:
    runs = EndedInOrder()
    async with asyncio.timeout(SECONDS), open_queue(database_url) as queue, open_queue(database_url) as other:
        await defer(queue, engine, "aaaaaaaabb")

        async with working(queue, runs, concurrency=2, per_tenant=1), working(other, runs, concurrency=2, per_tenant=1):
            first = "".join([await runs.started.get() for _ in range(4)])

    assert sorted(first) == list("aabb")


@pytest.mark.parametrize("workers", [1, 2])
async def test_third_tenant_behind_two_that_fill_all_workers_gets_the_next_slot_and_then_its_turns(
    database_url: str, engine: AsyncEngine, workers: int
) -> None:
    runs = EndedInOrder()
    async with asyncio.timeout(SECONDS), AsyncExitStack() as stack:
        queues = [await stack.enter_async_context(open_queue(database_url)) for _ in range(workers)]
        await defer(queues[0], engine, "ab" * 12)
        for queue in queues:
            await stack.enter_async_context(working(queue, runs, concurrency=4, per_tenant=3))
        full = [await runs.started.get() for _ in range(4 * workers)]
        await defer(queues[0], engine, "cccc")

        runs.ends.release()
        then = await runs.started.get()
        for _ in range(8):
            runs.ends.release()
            then += await runs.started.get()

    assert sorted(full) == sorted("ab" * (2 * workers))
    assert then.startswith("c")
    assert max(map(len, then.split("c"))) <= 2 * workers  # runs of the others between two of its own


async def test_tenant_at_its_share_gets_no_slot_for_a_run_accepted_here(database_url: str) -> None:
    async with open_queue(database_url) as queue, working(queue, EndedInOrder(), concurrency=3, per_tenant=2):
        reserved = [queue.reserve(tenant) for tenant in "aaab"]

    assert reserved == [True, True, False, True]


async def defer(queue: RunQueue, engine: AsyncEngine, tenants: Iterable[str]) -> None:
    async with transaction(engine) as connection:
        await queue.defer(connection, [new_run(tenant=tenant).key for tenant in tenants])


@asynccontextmanager
async def working(queue: RunQueue, runs: EndedInOrder, *, concurrency: int, per_tenant: int) -> AsyncGenerator[None]:
    work = queue.work(runs.take, concurrency=concurrency, per_tenant=per_tenant, isolated=1)
    task = asyncio.get_running_loop().create_task(work)
    await asyncio.sleep(0)  # it has slots from its first step on
    try:
        yield
    finally:
        for _ in range(99):  # else the worker waits a second for its runs
            runs.ends.release()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_worker_executes_at_most_its_share_of_runs_of_one_tenant(
    database_url: str, engine: AsyncEngine, tmp_path: Path
) -> None:
    script = ScriptedModel(held=True)
    script.supervisor(decision(reply="Yes."))
    async with (
        asyncio.timeout(SECONDS),
        ModelServer(script) as model,
        open_platform(database_url, model, {}, tmp_path, runs_per_worker=4, tenant_share=0.5) as platform,
    ):
        for thread in "abc":
            await platform.accept("Is it?", thread=thread)
        async with running_worker(platform.worker_runtime.worker):
            await model.received(2)
            other = replace(CALLER, tenant="other")
            await platform.services.runs.acceptance.accept(other, RunRequest("Is it?", "thread"))
            await model.received(3)
            async with engine.connect() as connection:
                query = "SELECT tenant, count(*) FROM runs WHERE status = 'running' GROUP BY tenant"
                running = {row[0]: row[1] for row in await connection.execute(text(query))}

    assert running == {CALLER.tenant: 2, "other": 1}
