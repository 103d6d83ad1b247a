"""Acceptance and admission of runs."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from psycopg import AsyncConnection
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.errors import BacklogFullError
from starling.infra.postgres.runs import acceptance as runs
from starling.infra.postgres.runs.acceptance import IdempotencyKey, OpenClarificationError
from starling.infra.postgres.runs.broadcast import Broadcast
from starling.infra.postgres.runs.busy_thread_policy import Policy
from starling.infra.postgres.runs.interrupts import InterruptRepository
from starling.infra.postgres.runs.writer import RunWriter
from tests.support.admission_harness import CAP, AdmissionHarness
from tests.support.run_factories import claimed, new_question, new_run, wait_for_answer


@pytest.fixture
def admission(engine: AsyncEngine) -> AdmissionHarness:
    return AdmissionHarness(engine)


async def test_request_beyond_the_backlog_of_its_tenant_is_refused_until_a_run_starts(engine: AsyncEngine) -> None:
    admission = AdmissionHarness(engine, backlog=2)
    first, _ = [await admission.accept(thread=name) for name in ("a", "b")]

    with pytest.raises(BacklogFullError) as refused:
        await admission.accept(thread="one too many")
    assert refused.value.retry_after > 0
    await admission.accept(tenant="another")
    assert await admission.claims(first)
    await admission.accept(thread="one that fits")


async def test_full_backlog_refuses_neither_repeated_requests_nor_answers(engine: AsyncEngine) -> None:
    admission = AdmissionHarness(engine, backlog=1)
    asking = await admission.accept(thread="asking")
    writer = RunWriter(engine, await claimed(admission.leases, asking), Broadcast())
    interrupts = InterruptRepository(engine, admission.repository)
    await wait_for_answer(writer, new_question(asking.id), interrupts)
    await writer.close()
    queued = replace(new_run(thread="queued"), idempotency=IdempotencyKey("key", "hash"))
    await admission.repository.accept(queued)

    with pytest.raises(BacklogFullError):
        await admission.accept(thread="another")
    with pytest.raises(OpenClarificationError):  # the message answers the question
        await admission.accept(thread="asking")
    repeated = await admission.repository.accept(replace(queued, key=new_run().key))
    assert repeated.started.run_id == queued.key.id


async def test_one_run_of_a_branch_is_runnable_and_its_end_admits_the_next(admission: AdmissionHarness) -> None:
    first, second, third = [await admission.accept() for _ in range(3)]

    assert admission.queued == [first]
    assert not await admission.claims(second)
    await admission.end(first)
    assert admission.queued == [first, second]
    assert not await admission.claims(third)
    await admission.end(second)
    assert admission.queued == [first, second, third]


async def test_concurrently_accepted_runs_are_ordered_on_their_branch(admission: AdmissionHarness) -> None:
    keys = await asyncio.gather(*(admission.accept() for _ in range(6)))

    for _ in keys:
        assert len(admission.queued) == len(set(admission.queued))
        await admission.end(admission.queued[-1])

    assert sorted(key.id for key in admission.queued) == sorted(key.id for key in keys)


async def test_concurrent_interrupting_runs_do_not_deadlock(admission: AdmissionHarness, engine: AsyncEngine) -> None:
    policies: list[Policy] = ["interrupt", "enqueue", "interrupt"] * 20

    keys = await asyncio.gather(*(admission.accept(policy=policy) for policy in policies))

    async with engine.connect() as connection:
        await connection.execute(text("SELECT pg_stat_force_next_flush(), pg_stat_clear_snapshot()"))
        deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        assert (await connection.execute(text(deadlocks))).scalar_one() == 0
        cancelled = "SELECT cancel_requested FROM runs WHERE id = ANY(:keys) ORDER BY arrival"
        flags = (await connection.execute(text(cancelled), {"keys": [key.id for key in keys]})).scalars().all()
    assert len(flags) == 60
    assert not flags[-1]


async def test_a_tenant_has_no_more_runnable_runs_than_its_cap(admission: AdmissionHarness) -> None:
    keys = [await admission.accept(thread=f"thread {number}") for number in range(CAP + 2)]
    other = await admission.accept(tenant="other")

    assert admission.queued == [*keys[:CAP], other]
    await admission.end(keys[0])
    assert admission.queued[-1] == keys[CAP]


async def test_admission_does_not_scan_ended_runs(database_url: str) -> None:
    connection = await AsyncConnection.connect(database_url, autocommit=True)
    async with connection:
        await connection.execute("INSERT INTO threads (tenant, id) VALUES ('default', 't')")
        await connection.execute("INSERT INTO branches (tenant, thread_id, id) VALUES ('default', 't', 'main')")
        await connection.execute(_LONG_LINE)
        await connection.execute("ANALYZE runs")
        explained = f"EXPLAIN (ANALYZE, FORMAT JSON) {runs._ADMIT}"  # pyright: ignore[reportPrivateUsage]
        found = await (await connection.execute(explained.encode(), {"tenant": "default", "cap": CAP})).fetchone()
        admitted = await (await connection.execute("SELECT arrival FROM runs WHERE admitted_at IS NOT NULL")).fetchall()

    assert found is not None
    looked_at = sum(_rows(found[0] if isinstance(found[0], list) else json.loads(found[0])))
    assert admitted == [(2001,)]
    assert looked_at < 1_000


_LONG_LINE = """
INSERT INTO runs (tenant, id, thread_id, branch_id, arrival, status, epoch, graph_version, input, config, principal,
    correlation_id, trace_id, ended_at)
SELECT 'default', gen_random_uuid(), 't', 'main', place, CASE WHEN place > 2000 THEN 'queued' ELSE 'succeeded' END,
    1, 1, 'hi', '{}', '{}', 'c', 't', CASE WHEN place <= 2000 THEN now() END
FROM generate_series(1, 2050) AS place"""


def _rows(plan: Any) -> Iterator[float]:
    """Yield the number of rows of `runs` that each node of a plan read."""
    match plan:
        case list():
            for part in plan:  # pyright: ignore[reportUnknownVariableType]
                yield from _rows(part)
        case dict():
            if plan.get("Relation Name") == "runs" and "Scan" in plan["Node Type"]:
                yield (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
            for part in plan.values():  # pyright: ignore[reportUnknownVariableType]
                yield from _rows(part)
        case _:
            return
