"""Explanations of stored runs: what was pruned, large runs, and secrets in what people read."""

import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.app.runs.explanations import RunExplanations
from starling.infra.postgres.retention import PruneSelection, Retention
from starling.infra.postgres.runs.documents import MostRows, RunDocumentRepository
from starling.infra.postgres.tables.run_records import runs
from tests.support.stored_runs import blocked_for, events_of, stored_run

_LOOP_SECONDS = 0.1  # for so long at most the event loop may be blocked


@pytest.fixture
def explanations(engine: AsyncEngine) -> RunExplanations:
    return RunExplanations(RunDocumentRepository(engine))


async def test_large_run_is_explained_without_blocking_the_event_loop(
    engine: AsyncEngine, explanations: RunExplanations
) -> None:
    steps = [{"path": f"t{n % 200}", "input_tokens": 1, "output_tokens": 1} for n in range(1000)]
    key = await stored_run(engine, events_of(300, chars=15_000), steps)  # 9 MB
    small = await stored_run(engine, events_of(1))
    await explanations.explain(small)  # imports, and compiled statements
    stop = asyncio.Event()

    async with asyncio.TaskGroup() as group:
        watcher = group.create_task(blocked_for(stop))
        found = await explanations.explain(key)
        stop.set()

    assert found.cause is not None
    assert (found.cause.task, found.cost.by_agent[0].model_calls > 0) == ("t300", True)
    assert watcher.result() < _LOOP_SECONDS


async def test_run_with_more_rows_than_are_read_says_so(engine: AsyncEngine) -> None:
    key = await stored_run(engine, events_of(3))
    limited = RunExplanations(RunDocumentRepository(engine, MostRows(events=5)))

    found = await limited.explain(key)

    assert [(one.what, one.text) for one in found.pruned] == [
        ("not_read", "Only the first 5 events were read: the run has more.")
    ]


async def test_pruned_run_is_explained_by_what_is_kept(engine: AsyncEngine, explanations: RunExplanations) -> None:
    key = await stored_run(engine, events_of(2))
    before = await explanations.explain(key)

    await Retention(engine).prune(PruneSelection(timedelta(0)))

    after = await explanations.explain(key)
    assert (before.pruned, {one.what for one in after.pruned}) == ((), {"events", "steps", "journal"})
    assert before.cause is not None
    assert after.cause is not None
    assert (before.cause.code, after.cause.code) == ("tool_failed", "failed_task")
    assert "There is no thing" in after.cause.text


@pytest.mark.parametrize("shown", [160, 300, 4_000])
async def test_key_in_a_request_is_masked_where_the_text_is_cut_within_it(
    engine: AsyncEngine, explanations: RunExplanations, shown: int
) -> None:
    secret = "sk-" + "a1b2c3d4e5f6" * 10
    asked = "x " * ((shown - 12) // 2)
    key, other = await stored_run(engine, events_of(1)), await stored_run(engine, events_of(1))
    async with engine.begin() as connection:
        await connection.execute(update(runs).values(input=f"{asked}{secret}"))

    told = [await explanations.explain(key), await explanations.compare(key, other)]

    assert [secret[:6] in str(one) for one in told] == [False, False]
