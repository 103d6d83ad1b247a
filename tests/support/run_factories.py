"""Runs and interrupts for tests of the storage layer."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from psycopg import AsyncConnection
from psycopg.sql import SQL, Identifier

from starling.core.clock import SystemClock
from starling.core.events.run_events import Clarification
from starling.core.ids import new_id, trace_id_of
from starling.core.principal import DEFAULT_TENANT
from starling.core.runs import Run, RunConfig
from starling.infra.postgres.runs.acceptance import Claim, Connection, NewRun, RunKey
from starling.infra.postgres.runs.interrupts import InterruptRepository, StoredInterrupt, insert_interrupts
from starling.infra.postgres.runs.leases import Leases
from starling.infra.postgres.runs.writer import RunWriter

CLAIMED_RUN = Run(
    tenant="default",
    id="run",
    thread_id="thread",
    branch_id="branch",
    epoch=1,
    input="How is the disk?",
    config=RunConfig(),
    correlation_id="correlation",
    trace_id="1" * 32,
    fence=1,
    crashes=0,
    remaining_seconds=60,
    claimed_at=datetime(2026, 11, 20, tzinfo=UTC),
)


async def defer_nothing(connection: Connection, keys: Sequence[RunKey]) -> None:
    """Queue nothing."""


def new_run(run_id: str = "", *, tenant: str = DEFAULT_TENANT, thread: str = "thread") -> NewRun:
    run_id = run_id or new_id()
    return NewRun(
        key=RunKey(tenant, run_id),
        thread_id=thread,
        input="Hi.",
        config=RunConfig(),
        principal={},
        correlation_id="c",
        trace_id=trace_id_of(run_id),
    )


async def claimed(leases: Leases, key: RunKey, *, lease_seconds: float = 60) -> Claim:
    claim = await leases.claim(key, worker="test", lease_seconds=lease_seconds, run_seconds=60)
    assert claim is not None
    return claim


def new_question(run_id: str, *, seconds: float = 60) -> StoredInterrupt:
    """A question to the user that can be answered for so long."""
    return StoredInterrupt(
        id=new_id(),
        run_id=run_id,
        key=f"clarification/{new_id()}",
        kind="clarification",
        path="supervisor",
        reason="It is unclear.",
        message="Which one?",
        responseSchema={},
        call=None,
        state="open",
        payload=None,
        createdAt=None,
        expiresAt=SystemClock().now() + timedelta(seconds=seconds),
    )


async def wait_for_answer(writer: RunWriter, question: StoredInterrupt, interrupts: InterruptRepository) -> None:
    """Ask the question and let the writer's run wait."""
    run, key = writer.run, RunKey(writer.run.tenant, writer.run.id)

    async def wake(connection: Connection) -> None:
        await interrupts.wake_if_answered(connection, key, [question.id])

    told = {
        "id": question.id,
        "reason": question.reason,
        "message": question.message,
        "responseSchema": question.responseSchema,
        "expiresAt": question.expiresAt,
    }
    writer.emit(Clarification.model_validate(told))
    writer.add(lambda: insert_interrupts(run.thread_id, run.branch_id, [question]))
    await writer.suspend(wake)


@asynccontextmanager
async def locked(table: str, url: str) -> AsyncGenerator[None]:
    """Lock all rows of a table, so that changes to them wait."""
    async with await AsyncConnection.connect(url) as other:
        await other.execute(SQL("SELECT FROM {} FOR UPDATE").format(Identifier(table)))
        yield


async def wait_for_lock_waiter(url: str) -> None:
    """Return once a session waits for a lock."""
    query = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    async with asyncio.timeout(60), await AsyncConnection.connect(url, autocommit=True) as watcher:
        while await (await watcher.execute(query)).fetchone() is None:
            pass
