"""The run writer: fenced writes, consecutive event numbers, no batch written twice."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from brain.durability.checkpointer import RunCheckpoints
from brain.skills.repository import NewSkill, SkillQuery, SkillUse
from brain.skills.repository import storing as storing_skills
from brain.skills.skill import LearnedSkill
from starling.core.conversation.states import FinishedState
from starling.core.conversation.turn import PlacedState
from starling.core.errors import LeaseLostError, RunUnwritableError
from starling.core.events.run_events import Done, Thinking, Usage
from starling.core.ids import new_id
from starling.core.runs import RunResult, RunStatus, Step
from starling.core.tool_calls import AFTER_RUN_END, CallState, Effect
from starling.infra.postgres.engine import open_engine
from starling.infra.postgres.runs.acceptance import Claim, RunKey, RunRepository
from starling.infra.postgres.runs.broadcast import Broadcast, NoticeSender
from starling.infra.postgres.runs.conversations import push_turn
from starling.infra.postgres.runs.documents import RunDocumentRepository
from starling.infra.postgres.runs.interrupts import insert_interrupts
from starling.infra.postgres.runs.leases import Leases
from starling.infra.postgres.runs.ledger import LedgerReader, LedgerRow, storing
from starling.infra.postgres.runs.reader import RunReader
from starling.infra.postgres.runs.termination import DELETE_PROGRESS, close_open_work
from starling.infra.postgres.runs.writer import Clause, JournalEntry, RunWriter
from tests.support.broadcasts import open_broadcast
from tests.support.run_factories import claimed, defer_nothing, locked, new_question, new_run, wait_for_lock_waiter

_WRITTEN = {
    "steps": 3, "journal": 3, "interrupts": 3, "ledger": 3, "skills": 1, "states": 1, "audit_events": 2,
    "checkpoints": 0, "checkpoint_blobs": 0,
}  # fmt: skip
ENTRY = JournalEntry("t1", "answer", 0, 0, "hash", {"content": "a\0b"})


@pytest.fixture
def repository(engine: AsyncEngine) -> RunRepository:
    return RunRepository(engine, defer_nothing, cap=8)


@pytest.fixture
def leases(engine: AsyncEngine, repository: RunRepository) -> Leases:
    return Leases(engine, defer_nothing, repository.admit, graph_version=1)


@pytest.fixture
def reader(engine: AsyncEngine) -> RunReader:
    return RunReader(engine, Broadcast(), poll_seconds=0.05)


@pytest.fixture
async def claim(repository: RunRepository, leases: Leases) -> Claim:
    new = new_run()
    await repository.accept(new)
    return await claimed(leases, new.key)


@pytest.fixture
async def writer(engine: AsyncEngine, claim: Claim) -> AsyncGenerator[RunWriter]:
    notices = NoticeSender(engine)
    writer = RunWriter(engine, claim, Broadcast(notices=notices))
    yield writer
    await writer.close()
    await notices.close()


def say(text: str) -> Thinking:
    return Thinking(content=text, message_id="m")


async def written(reader: RunReader, claim: Claim) -> list[tuple[int, str]]:
    """The numbers and texts of a run's events after the first one."""
    return [(event.seq, event.data["content"]) for event in await reader.events(key_of(claim), after=1)]


def key_of(claim: Claim) -> RunKey:
    return RunKey(claim.run.tenant, claim.run.id)


async def test_flush_writes_collected_entries_together_with_consecutive_numbers(
    writer: RunWriter, reader: RunReader, claim: Claim
) -> None:
    writer.emit(say("one"))
    writer.step(Step(type="plan", description="a\0plan", metadata={}))
    writer.record(ENTRY)
    writer.emit(say("two"))
    await writer.flush()
    writer.emit(say("three"))
    await writer.flush()

    assert await written(reader, claim) == [(2, "one"), (3, "two"), (4, "three")]
    assert [step.description for step in await reader.steps(key_of(claim))] == ["a�plan"]
    (entry,) = await reader.journal(key_of(claim))
    assert entry.data == {"content": "a�b"}


async def test_what_looks_like_a_key_is_masked_for_people_and_kept_for_replay(
    writer: RunWriter, reader: RunReader, claim: Claim
) -> None:
    key = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
    writer.emit(say(f"It is {key}."))
    writer.step(Step(type="plan", description=f"Use {key}.", metadata={"args": {"token": [key]}}))
    writer.record(JournalEntry("t1", "answer", 0, 0, "hash", {"content": key}))
    await writer.flush()

    [step] = await reader.steps(key_of(claim))
    [entry] = await reader.journal(key_of(claim))
    assert await written(reader, claim) == [(2, "It is ***.")]
    assert (step.description, step.metadata) == ("Use ***.", {"args": {"token": ["***"]}})
    assert entry.data == {"content": key}


async def test_emitted_event_is_written_without_an_explicit_flush(
    writer: RunWriter, reader: RunReader, claim: Claim
) -> None:
    writer.emit(say("one"))

    async for event in reader.follow(key_of(claim), after=1):
        assert event.data["content"] == "one"
        break


async def test_event_emitted_during_a_flush_is_written_afterwards(
    writer: RunWriter, reader: RunReader, claim: Claim, database_url: str
) -> None:
    async with locked("runs", database_url):
        writer.emit(say("one"))
        await wait_for_lock_waiter(database_url)
        writer.emit(say("two"))

    async with asyncio.timeout(60):
        async for event in reader.follow(key_of(claim), after=1):
            if event.data["content"] == "two":
                break


async def test_cancelled_flush_still_writes_its_batch(
    writer: RunWriter, reader: RunReader, claim: Claim, database_url: str
) -> None:
    async with locked("runs", database_url):
        writer.emit(say("one"))
        caller = asyncio.get_running_loop().create_task(writer.flush())
        await wait_for_lock_waiter(database_url)
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
    writer.emit(say("two"))
    await writer.flush()

    assert await written(reader, claim) == [(2, "one"), (3, "two")]


async def test_flush_after_a_lost_lease_writes_nothing(
    writer: RunWriter, reader: RunReader, repository: RunRepository, leases: Leases, claim: Claim
) -> None:
    await leases.release(claim.run)
    await claimed(leases, key_of(claim))
    writer.emit(say("late"))

    with pytest.raises(LeaseLostError):
        await writer.flush()
    with pytest.raises(LeaseLostError):
        await writer.flush()

    assert await written(reader, claim) == []


async def test_end_after_a_lost_lease_is_rejected(
    engine: AsyncEngine, writer: RunWriter, repository: RunRepository, leases: Leases, claim: Claim
) -> None:
    await leases.release(claim.run)
    await claimed(leases, key_of(claim))

    with pytest.raises(LeaseLostError):
        await end(writer, repository)

    assert (await RunDocumentRepository(engine).row(key_of(claim))).status is RunStatus.RUNNING


async def test_failed_write_stores_nothing_of_its_batch(writer: RunWriter, reader: RunReader, claim: Claim) -> None:
    writer.emit(say("one"))
    writer.add(lambda: Clause("broken AS (INSERT INTO threads (tenant, id) SELECT 'x', 1 / 0 FROM fenced)", {}))

    with pytest.raises(Exception, match="division by zero"):
        await writer.flush()

    assert await written(reader, claim) == []


async def test_flush_raises_after_retrying_an_unavailable_postgres(claim: Claim) -> None:
    away = open_engine("postgresql://nobody@127.0.0.1:9/none")
    writer = RunWriter(away, claim, Broadcast(), retry_seconds=0.2)
    writer.emit(say("one"))

    with pytest.raises(RunUnwritableError):
        await writer.flush()

    await writer.close()
    await away.dispose()


async def test_ended_run_has_its_result_and_stays_ended(
    engine: AsyncEngine,
    writer: RunWriter,
    reader: RunReader,
    repository: RunRepository,
    leases: Leases,
    claim: Claim,
) -> None:
    await end(writer, repository)

    run = await RunDocumentRepository(engine).row(key_of(claim))
    assert (run.status, run.result and run.result["reply"]) == (RunStatus.SUCCEEDED, "Done.")
    assert [event.type async for event in reader.follow(key_of(claim))] == ["run_started", "done"]
    assert await leases.claim(key_of(claim), worker="w", lease_seconds=9, run_seconds=9) is None


async def test_flush_notifies_readers_in_another_process(
    engine: AsyncEngine, writer: RunWriter, claim: Claim, database_url: str
) -> None:
    async with asyncio.timeout(60), open_broadcast(database_url) as elsewhere:
        events = RunReader(engine, elsewhere, poll_seconds=600).follow(key_of(claim))
        await anext(events)
        writer.emit(say("one"))
        await writer.flush()

        assert (await anext(events)).data["content"] == "one"


async def end(writer: RunWriter, repository: RunRepository) -> None:
    result = RunResult(status="succeeded", reply="Done.")
    await writer.end(result, Done(usage=Usage(), status="succeeded", reply="Done."), repository)


def add_all_parts(writer: RunWriter, checkpoints: RunCheckpoints, number: int) -> None:
    """Add one of everything that a run writes."""
    run, call = writer.run, LedgerRow(f"{number}", "t1", 0, 0, "shop.order", Effect.UNSAFE, {}, CallState.INTENDED)
    query = SkillQuery("look", ["look"])
    learned = LearnedSkill("look", "look", (), "Seen.", {}, "specialist", "bench", "t1")
    writer.emit(say("all of it"))
    writer.step(Step(type="plan", description="a plan", metadata={}))
    writer.record(JournalEntry(f"t{number}", "answer", 0, 0, "hash", {}))
    writer.add(lambda: insert_interrupts(run.thread_id, run.branch_id, [new_question(run.id)]))
    writer.add(lambda: storing([call], "c"))
    writer.add(lambda: storing_skills([NewSkill(new_id(), learned, query)], [SkillUse(new_id(), success=True)]))
    for path in ("", "t1"):
        checkpoint = {"channel_versions": {"plan": f"{number}"}}
        row = {"namespace": path, "id": f"{number}", "parent": None, "checkpoint": checkpoint, "metadata": {}}
        checkpoints.add(path, row, {"plan": ["look"]}, {"plan": f"{number}"})


async def test_everything_that_a_run_writes_fits_into_one_flush(
    engine: AsyncEngine, writer: RunWriter, repository: RunRepository, reader: RunReader, claim: Claim
) -> None:
    checkpoints = RunCheckpoints(engine, writer)
    for number in (1, 2):  # the second checkpoint of a star replaces the first
        add_all_parts(writer, checkpoints, number)
        await writer.flush()
    add_all_parts(writer, checkpoints, 3)
    writer.add(lambda: close_open_work({"text": "lost"}, "cancelled"))
    result, last = RunResult(status="succeeded", reply="Done."), Done(usage=Usage(), status="succeeded", reply="Done.")
    await writer.end(
        result, last, repository, [DELETE_PROGRESS, push_turn(claim.run, [PlacedState(FinishedState(), 1.0)])]
    )

    assert [event.type for event in await reader.events(key_of(claim), after=1)] == [*["thinking"] * 3, "done"]
    async with engine.connect() as connection:
        stored = {name: await connection.scalar(text(f"SELECT count(*) FROM {name}")) for name in _WRITTEN}  # noqa: S608
    assert stored == _WRITTEN


async def test_closing_open_work_settles_each_unsettled_call_in_the_state_that_the_state_table_gives_it(
    engine: AsyncEngine, writer: RunWriter, claim: Claim
) -> None:
    before = [
        LedgerRow(f"{state}, settled: {settled}", "t1", 0, 0, "shop.order", Effect.UNSAFE, {}, state, settled=settled)
        for state in CallState
        if state is not CallState.ANNOUNCED
        for settled in (False, True)
    ]
    writer.add(lambda: storing(before, "c"))
    await writer.flush()

    writer.add(lambda: close_open_work({"text": "lost"}, "cancelled"))
    await writer.flush()

    after = {row.key: (row.state, row.settled_by) for row in await LedgerReader(engine).calls(key_of(claim))}
    closed = {row.key: AFTER_RUN_END[row.state] for row in before if row.state in AFTER_RUN_END and not row.settled}
    assert after == {
        row.key: (closed[row.key], "cancelled") if row.key in closed else (row.state, None) for row in before
    }
