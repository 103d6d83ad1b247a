"""What ended runs left goes by age, beside runs that go on, and readers learn of it once."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from random import Random

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.events.run_events import Done, Failure, Usage, Warn
from starling.core.ids import new_id
from starling.core.run_document.rows import EventRow
from starling.core.runs import FinalStatus, RunResult, Step
from starling.infra.postgres.retention import PruneSelection, Retention, RetentionReport
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.broadcast import Broadcast
from starling.infra.postgres.runs.documents import RunDocumentRepository
from starling.infra.postgres.runs.reader import RunReader
from starling.infra.postgres.runs.writer import JournalEntry, RunWriter
from tests.support.admission_harness import CAP, AdmissionHarness
from tests.support.run_factories import claimed

MONTH = timedelta(days=30)
OLD = PruneSelection(MONTH)
SEEDS = range(3)
_threads = count()


@dataclass
class Archive:
    """Runs that write and end, some of them long ago."""

    engine: AsyncEngine
    admission: AdmissionHarness

    async def begun(self, warnings: int, *, tenant: str = "default") -> RunWriter:
        """Return the writer of a run that goes on and has written something of everything."""
        key = await self.admission.accept(thread=f"thread {next(_threads)}", tenant=tenant)
        writer = RunWriter(self.engine, await claimed(self.admission.leases, key), Broadcast())
        writer.step(Step(type="plan", description="Planned.", metadata={}))
        writer.record(JournalEntry("t1", "answer", 0, 0, "hash", {}))
        for number in range(warnings):
            writer.emit(Warn(code="noticed", message=str(number)))
            await writer.flush()
        return writer

    async def end(self, writer: RunWriter, *, failure: Failure | None = None) -> RunKey:
        if failure:
            writer.emit(failure)
        status: FinalStatus = "failed" if failure else "succeeded"
        result, last = RunResult(status=status, reply="Done."), Done(usage=Usage(), status=status, reply="Done.")
        await writer.end(result, last, self.admission.repository)
        await writer.close()
        return RunKey(writer.run.tenant, writer.run.id)

    async def old(self, warnings: int = 3, *, tenant: str = "default", failure: Failure | None = None) -> RunKey:
        """Return a run that ended two months ago."""
        key = await self.end(await self.begun(warnings, tenant=tenant), failure=failure)
        await self.execute("UPDATE runs SET ended_at = ended_at - interval '60 days' WHERE id = :id", id=key.id)
        return key

    async def execute(self, statement: str, **values: object) -> None:
        async with self.engine.begin() as connection:
            await connection.execute(text(statement), values)

    async def rows(self, table: str) -> int:
        async with self.engine.connect() as connection:
            return (await connection.execute(text(f"SELECT count(*) FROM {table}"))).scalar_one()  # noqa: S608

    async def read(self, key: RunKey, after: int = 0) -> list[EventRow]:
        """Return what a reader is told of a run that has ended."""
        return [event async for event in RunReader(self.engine, Broadcast()).follow(key, after=after)]

    async def prune(self, which: PruneSelection = OLD) -> RetentionReport:
        return await Retention(self.engine, runs_at_once=2, rows_at_once=2).prune(which)

    async def add_call(self, key: RunKey, state: str) -> None:
        columns = "tenant, run_id, key, path, position, index, tool, effect, arguments, state, correlation_id"
        values = ":tenant, :id, :state, 't1', 0, 0, 's.t', 'unsafe', '{}', :state, 'c'"
        await self.execute(f"INSERT INTO ledger ({columns}) VALUES ({values})", state=state, **vars_of(key))  # noqa: S608


def vars_of(key: RunKey) -> dict[str, str]:
    return {"tenant": key.tenant, "id": key.id}


def told(events: Sequence[EventRow]) -> list[tuple[int, str]]:
    return [(event.seq, event.type) for event in events]


@pytest.fixture
async def archive(engine: AsyncEngine) -> Archive:
    return Archive(engine, AdmissionHarness(engine))


async def test_pruned_run_keeps_its_last_event_and_readers_get_one_gap(archive: Archive) -> None:
    key = await archive.old(3)

    forgotten = await archive.prune()

    assert (forgotten.runs, forgotten.ended, forgotten.unsettled) == (1, 1, 0)
    assert forgotten.rows == {"events": 4, "steps": 1, "journal": 1}
    for after in range(4):
        gap, done = await archive.read(key, after)
        assert (gap.type, gap.data["from"], gap.data["to"]) == ("gap", after + 1, 4)
        assert (done.seq, done.type) == (5, "done")
    assert told(await archive.read(key, 4)) == [(5, "done")]
    assert (await RunDocumentRepository(archive.engine).row(key)).result is not None


async def test_pruned_run_keeps_the_reason_of_its_failure(archive: Archive) -> None:
    key = await archive.old(2, failure=Failure(code="internal", message="It broke."))

    await archive.prune()

    assert told(await archive.read(key)) == [(3, "gap"), (4, "error"), (5, "done")]


async def test_pruning_keeps_young_and_unfinished_runs(archive: Archive) -> None:
    young = await archive.end(await archive.begun(2))
    running = await archive.begun(2)
    await archive.execute("UPDATE runs SET created_at = created_at - interval '60 days'")

    forgotten = await archive.prune()

    assert (forgotten.total, forgotten.ended) == (0, 0)
    assert len(await archive.read(young)) == 4
    await archive.end(running)


async def test_skills_are_pruned_on_request_unless_used_or_given_a_further_task_since(archive: Archive) -> None:
    main, used, enlarged = (new_id() for _ in range(3))
    insert = """
        INSERT INTO skills (tenant, id, merged_into, task, template, calls, outcome, tools, shape, agent_kind, agent,
            provenance, words, created_at, last_used_at)
        SELECT 'a', CAST(:id AS uuid), CAST(:into AS uuid), '', '', '[]', '', '{}', CAST(:id AS text), '', '', 'run',
            '', now() - make_interval(days => :age), now() - make_interval(days => CAST(:used AS int))"""
    for values in ((main, None, 90, 60), (new_id(), main, 80, None), (used, None, 90, 1), (new_id(), used, 90, None),
                   (enlarged, None, 90, None), (new_id(), enlarged, 1, None)):  # fmt: skip
        await archive.execute(insert, **dict(zip(("id", "into", "age", "used"), values, strict=True)))
    await archive.prune()
    assert await archive.rows("skills") == 6

    forgotten = await archive.prune(replace(OLD, skills=True))

    assert forgotten.rows == {"skills": 2}
    assert await archive.rows(f"skills WHERE id = '{main}' OR merged_into = '{main}'") == 0


async def test_what_was_asked_for_is_pruned_without_details_of_runs(archive: Archive) -> None:
    key = await archive.old()
    await archive.add_call(key, "succeeded")
    await archive.execute(
        """INSERT INTO idempotency_keys (tenant, key, request_hash, run_id, created_at)
        VALUES (:tenant, 'key', 'hash', :id, now() - interval '60 days')""",
        **vars_of(key),
    )
    await archive.execute("UPDATE audit_events SET created_at = created_at - interval '60 days'")
    await archive.execute("""INSERT INTO audit (tenant, id, actor, origin, action, target, detail, created_at)
        VALUES ('*', gen_random_uuid(), 'local', 'cli', 'key.create', 'k', '{}', now() - interval '60 days')""")
    which = PruneSelection(MONTH, audit=True, runs=False)

    previewed, forgotten = await Retention(archive.engine).preview(which), await archive.prune(which)

    assert (previewed.rows, previewed.runs, previewed.ended) == ({"audit": 1}, 0, 0)
    assert (forgotten.rows, forgotten.runs, forgotten.ended) == ({"audit": 1}, 0, 0)
    assert len(await archive.read(key)) == 5
    assert (await archive.prune()).rows.keys() == {
        "events", "steps", "journal", "ledger", "idempotency_keys", "audit_events",
    }  # fmt: skip


async def test_second_pruning_deletes_nothing(archive: Archive) -> None:
    await archive.old()
    await archive.prune()

    forgotten = await archive.prune()

    assert (forgotten.runs, forgotten.rows, forgotten.ended) == (0, {}, 1)


async def test_preview_counts_the_rows_that_prune_deletes_and_deletes_nothing(archive: Archive) -> None:
    keys = [await archive.old() for _ in range(5)]
    await archive.add_call(keys[0], "succeeded")
    await archive.execute("UPDATE audit_events SET created_at = created_at - interval '60 days'")
    retention = Retention(archive.engine)

    previewed, again = await retention.preview(OLD), await retention.preview(OLD)
    forgotten = await retention.prune(OLD)

    assert previewed.rows == again.rows == forgotten.rows
    assert previewed.runs == forgotten.runs == 5
    assert previewed.rows.keys() == {"events", "steps", "journal", "ledger", "audit_events"}


async def test_call_with_an_unknown_outcome_is_kept_until_it_is_settled(archive: Archive) -> None:
    key = await archive.old()
    for state in ("intended", "succeeded", "failed", "dispatched", "in_doubt"):
        await archive.add_call(key, state)

    first = await archive.prune()
    await archive.execute("UPDATE ledger SET settled_at = now() WHERE state = 'in_doubt'")
    second = await archive.prune()

    assert (first.rows["ledger"], first.unsettled) == (3, 2)
    assert (second.rows, second.unsettled) == ({"ledger": 1}, 1)


async def test_open_interrupt_is_kept(archive: Archive) -> None:
    key = await archive.old()
    statement = """INSERT INTO interrupts (tenant, id, run_id, key, kind, path, reason, message, response_schema, state)
        VALUES (:tenant, gen_random_uuid(), :id, :state, 'approval', 't1', 'why', 'May I?', '{}', :state)"""
    for state in ("open", "resolved", "cancelled", "expired"):
        await archive.execute(statement, state=state, **vars_of(key))

    forgotten = await archive.prune()

    assert forgotten.rows["interrupts"] == 3
    assert await archive.rows("interrupts") == 1


async def test_feedback_is_deleted_with_its_run_only(archive: Archive) -> None:
    old, young = await archive.old(), await archive.end(await archive.begun(1))
    statement = "INSERT INTO feedback (tenant, run_id, principal, score) VALUES (:tenant, :id, 'me', 0.5)"
    for key in (old, young):
        await archive.execute(statement, **vars_of(key))

    forgotten = await archive.prune()

    assert forgotten.rows["feedback"] == 1
    assert await archive.rows(f"feedback WHERE run_id = '{young.id}'") == await archive.rows("feedback") == 1


async def test_pruning_a_tenant_keeps_runs_of_other_tenants(archive: Archive) -> None:
    ours, theirs = await archive.old(tenant="ours"), await archive.old(tenant="theirs")

    forgotten = await archive.prune(PruneSelection(MONTH, tenant="ours"))

    assert (forgotten.runs, forgotten.ended) == (1, 1)
    assert len(await archive.read(ours)) == 2
    assert len(await archive.read(theirs)) == 5


async def test_idempotency_key_is_deleted_with_its_run_only(archive: Archive) -> None:
    old, running = await archive.old(), await archive.begun(1)
    statement = """INSERT INTO idempotency_keys (tenant, key, request_hash, run_id, created_at)
        VALUES (:tenant, :key, 'hash', :id, now() - interval '60 days')"""
    for key in (old, RunKey(running.run.tenant, running.run.id)):
        await archive.execute(statement, key=f"key of {key.id}", **vars_of(key))

    forgotten = await archive.prune()

    assert forgotten.rows["idempotency_keys"] == await archive.rows("idempotency_keys") == 1
    await archive.end(running)


async def test_undelivered_audit_events_are_kept_for_their_delivery_time(archive: Archive) -> None:
    for _ in range(3):
        await archive.old()
    await archive.execute("UPDATE audit_events SET created_at = created_at - interval '2 days'")
    await archive.execute("UPDATE audit_events SET delivered_at = now() WHERE event_type = 'run_started'")

    forgotten = await archive.prune(PruneSelection(timedelta(days=1)))

    assert forgotten.rows["audit_events"] == await archive.rows("audit_events") == 3


async def test_audit_trail_is_pruned_on_request_only(archive: Archive) -> None:
    await archive.execute("""INSERT INTO audit (tenant, id, actor, origin, action, target, detail, created_at)
        VALUES ('*', gen_random_uuid(), 'local', 'cli', 'key.create', 'k', '{}', now() - interval '60 days')""")

    assert (await archive.prune()).rows == {}
    assert (await archive.prune(PruneSelection(MONTH, audit=True))).rows == {"audit": 1}


async def test_locked_run_is_left_for_the_next_pruning(archive: Archive) -> None:
    held, other = await archive.old(), await archive.old()
    async with archive.engine.begin() as connection:
        await connection.execute(text("SELECT FROM runs WHERE id = :id FOR UPDATE"), {"id": held.id})

        forgotten = await archive.prune()

    assert forgotten.runs == 1
    assert len(await archive.read(held)) == 5
    assert len(await archive.read(other)) == 2


@pytest.mark.parametrize("seed", SEEDS)
async def test_pruning_concurrent_with_running_runs_loses_nothing_of_them(archive: Archive, seed: int) -> None:
    random = Random(seed)
    old = [await archive.old(random.randrange(6)) for _ in range(random.randrange(1, 8))]
    sizes = [random.randrange(1, 20) for _ in range(CAP)]

    async def live(warnings: int) -> RunKey:
        return await archive.end(await archive.begun(warnings))

    pruning = asyncio.gather(archive.prune(), archive.prune())
    ended = await asyncio.gather(*map(live, sizes))
    pruned, again = await pruning

    assert pruned.runs + again.runs == len(old)
    for key in old:
        events = await archive.read(key)
        assert [event.type for event in events] == ["gap", "done"]
        assert events[0].data["to"] + 1 == events[1].seq
    for key, warnings in zip(ended, sizes, strict=True):
        assert [event.seq for event in await archive.read(key)] == list(range(1, warnings + 3))
