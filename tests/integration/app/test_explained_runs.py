"""Explanations of stored runs: what was pruned, and secrets in what people read."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncEngine

from brain.explanation.comparison import compare
from brain.explanation.explain import explain
from starling.infra.postgres.retention import PruneSelection, Retention
from starling.infra.postgres.runs.documents import MostRows, RunDocumentRepository
from starling.infra.postgres.tables.run_records import runs
from tests.support.stored_runs import events_of, stored_run

NOW = datetime.now(UTC)


async def test_run_with_more_rows_than_are_read_says_so(engine: AsyncEngine) -> None:
    key = await stored_run(engine, events_of(3))

    found = await RunDocumentRepository(engine, MostRows(events=5)).read(key)

    assert [(one.what, one.text) for one in found.pruned] == [
        ("not_read", "Only the first 5 events were read: the run has more.")
    ]


async def test_pruned_run_is_explained_by_what_is_kept(engine: AsyncEngine) -> None:
    documents, key = RunDocumentRepository(engine), await stored_run(engine, events_of(2))
    before = explain(await documents.read(key), NOW)

    await Retention(engine).prune(PruneSelection(timedelta(0)))

    after = explain(await documents.read(key), NOW)
    assert (before.pruned, {one.what for one in after.pruned}) == ((), {"events", "steps", "journal"})
    assert [one.cause.code for one in (before, after) if one.cause] == ["tool_failed", "failed_task"]
    assert "There is no thing" in str(after.cause)


@pytest.mark.parametrize("shown", [160, 300, 4_000])
async def test_key_in_a_request_is_masked_where_the_text_is_cut_within_it(engine: AsyncEngine, shown: int) -> None:
    secret = "sk-" + "a1b2c3d4e5f6" * 10
    asked = "x " * ((shown - 12) // 2)
    keys = [await stored_run(engine, events_of(1)) for _ in range(2)]
    async with engine.begin() as connection:
        await connection.execute(update(runs).values(input=f"{asked}{secret}"))

    first, second = [await RunDocumentRepository(engine).read(key) for key in keys]

    assert [secret[:6] in str(one) for one in (explain(first, NOW), compare(first, second))] == [False, False]
