"""Failed runs of many rows that are written into the database as they are, for those who read runs."""

import asyncio
import gc
import time
from collections.abc import Sequence
from typing import Any

from psycopg.types.json import Jsonb
from sqlalchemy import text, update
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.ids import new_id
from starling.infra.postgres.engine import driver
from starling.infra.postgres.runs.acceptance import RunKey, RunRepository
from starling.infra.postgres.tables.run_records import runs
from tests.support.run_factories import defer_nothing, new_run

_EVENTS = """
INSERT INTO events (tenant, run_id, seq, type, data) SELECT %s, %s, seq, type, data
FROM jsonb_to_recordset(%s) AS item (seq bigint, type text, data jsonb)"""
_STEPS = """
INSERT INTO steps (tenant, run_id, id, type, description, metadata) SELECT %s, %s, id, type, '', metadata
FROM jsonb_to_recordset(%s) AS item (id uuid, type text, metadata jsonb)"""


async def stored_run(
    engine: AsyncEngine, events: Sequence[dict[str, Any]], steps: Sequence[dict[str, Any]] = ()
) -> RunKey:
    """Store a run whose last task failed, with these events, numbered from 2, and these steps."""
    new = new_run()
    await RunRepository(engine, defer_nothing, cap=100).accept(new)
    numbered = [
        {"seq": seq, "type": event["type"], "data": event}
        for seq, event in enumerate([*events, {"type": "done"}], start=2)
    ]
    missing = {"part": events[0]["tasks"][-1]["task"], "reason": "bench.look failed: There is no thing."}
    result: dict[str, Any] = {"status": "failed", "reply": "No.", "code": "no_result", "degraded": [missing]}
    async with engine.begin() as connection:
        cursor = await driver(connection)
        place = new.key.tenant, new.key.id
        await cursor.execute(_EVENTS, (*place, Jsonb(numbered)))
        rows = [{"id": new_id(), "type": "llm_call", "metadata": step} for step in steps]
        await cursor.execute(_STEPS, (*place, Jsonb(rows)))
        ended: dict[str, Any] = {
            "status": "failed",
            "ended_at": text("now()"),
            "seq": len(events) + 2,
            "result": result,
        }
        await connection.execute(update(runs).where(runs.c.id == new.key.id).values(**ended))
    return new.key


def events_of(tasks: int, *, chars: int = 10, failed: str = "There is no thing.") -> list[dict[str, Any]]:
    """A plan of so many tasks, each with one call whose result is so long; the last one fails."""
    planned: list[dict[str, Any]] = [
        {"id": f"t{n}", "agent": "looker", "task": f"Look at thing {n}", "depends_on": [], "status": "pending"}
        for n in range(1, tasks + 1)
    ]
    found: list[dict[str, Any]] = [
        {"type": "plan", "version": 1, "plan": [], "tasks": planned, "thought_process": "", "path": ""}
    ]
    for n in range(1, tasks + 1):
        task: dict[str, Any] = {"task_id": f"t{n}", "agent": "looker", "path": f"t{n}", "attempt": 1}
        call = {"name": "bench.look", "call_id": f"t{n}.0.0"}
        bad = n == tasks
        said = {"result": failed if bad else "x" * chars, "status": "failed" if bad else "succeeded"}
        end: dict[str, Any] = {
            "status": "failed" if bad else "approved",
            "summary": said["result"][:280],
            "artifacts": [],
            "skills": [],
        }
        found += [
            {"type": "task_start", **task},
            {"type": "tool_start", **call, "args": {"thing": str(n)}, "task_id": f"t{n}", "path": f"t{n}"},
            {"type": "thinking", "content": "y" * chars, "message_id": "m"},
            {"type": "tool_result", **call, **said},
            {"type": "task_result", **task, **end, **({"code": "tool_error"} if bad else {})},
        ]
    return found


async def blocked_for(stop: asyncio.Event) -> float:
    """Return how many seconds the event loop computed without a pause, at most, until it is stopped.

    It is processor time of its thread: on a busy machine, waiting for a processor is no work of ours. What earlier
    tests left is excluded from garbage collection, as a platform excludes what its start made.
    """
    gc.collect()
    gc.freeze()
    longest, last = 0.0, time.thread_time()
    while not stop.is_set():
        await asyncio.sleep(0.001)
        now = time.thread_time()
        longest, last = max(longest, now - last), now
    gc.unfreeze()
    return longest
