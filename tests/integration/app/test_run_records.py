"""Records of stored runs: large ones, pruned ones, and how much is read for them."""

import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.app.runs import records
from starling.app.runs.records import RunRecords
from starling.infra.postgres.retention import PruneSelection, Retention
from starling.infra.postgres.runs.broadcast import Broadcast
from starling.infra.postgres.runs.documents import RunDocumentRepository
from starling.infra.postgres.runs.listing import RunFilter, RunListing
from starling.infra.postgres.runs.reader import RunReader
from tests.support.stored_runs import blocked_for, events_of, stored_run

STATEMENTS = 8  # of a record, beside the pages of its events
EVENTS_PER_STATEMENT = 200
LOOP_SECONDS = 0.05  # for so long at most the event loop may be blocked


@pytest.fixture
def exported(engine: AsyncEngine) -> RunRecords:
    return RunRecords(RunListing(engine), RunReader(engine, Broadcast()), RunDocumentRepository(engine))


async def test_record_of_a_large_run_is_made_in_few_statements_without_blocking_the_event_loop(
    engine: AsyncEngine, exported: RunRecords
) -> None:
    key = await stored_run(engine, events_of(500, chars=12_000), [{"path": "t1"}] * 1000)  # 12 MB
    statements: list[str] = []
    stop = asyncio.Event()

    async with asyncio.TaskGroup() as group:
        event.listen(engine.sync_engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
        watcher = group.create_task(blocked_for(stop))
        page = await exported.page(key.tenant, limit=10, which=RunFilter(id=key.id))
        stop.set()

    assert len(page.records[0].calls) == 500
    assert len(statements) <= STATEMENTS + 2002 / EVENTS_PER_STATEMENT
    assert watcher.result() < LOOP_SECONDS


async def test_runs_of_another_tenant_have_no_records(engine: AsyncEngine, exported: RunRecords) -> None:
    key = await stored_run(engine, events_of(1))

    found = [await exported.page("other", limit=9, which=which) for which in (RunFilter(), RunFilter(id=key.id))]

    assert [(page.records, page.next) for page in found] == [([], None), ([], None)]


async def test_page_of_long_records_ends_early_and_the_next_one_goes_on(
    engine: AsyncEngine, exported: RunRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [(await stored_run(engine, events_of(1, chars=100))).id for _ in range(3)]
    monkeypatch.setattr(records, "_PAGE_CHARS", 1)
    found: list[str] = []
    before: str | None = None

    while before is not None or not found:
        page = await exported.page("default", limit=2, which=RunFilter(before=before))
        found += [record.run_id for record in page.records]
        before = page.next

    assert found == asked[::-1]


async def test_only_a_run_whose_rows_were_deleted_is_marked_as_pruned(
    engine: AsyncEngine, exported: RunRecords
) -> None:
    key = await stored_run(engine, events_of(1))  # without steps
    which = RunFilter(id=key.id)

    before = await exported.page(key.tenant, limit=1, which=which)
    await Retention(engine).prune(PruneSelection(timedelta(0)))
    after = await exported.page(key.tenant, limit=1, which=which)

    assert [(page.records[0].pruned, page.next) for page in (before, after)] == [(False, None), (True, None)]
