"""How a new run affects the unfinished runs of its branch. Part of the transaction that accepts it."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from psycopg import AsyncConnection

from starling.core.errors import ConflictError

type Policy = Literal["enqueue", "reject", "interrupt"]
"""The new run waits for the unfinished ones, is rejected, or cancels them."""

CANCEL_CHANNEL: Final = "starling_cancels"  # notified when a run that a worker holds is to be cancelled

# Excludes the run itself: it exists already if the result of the accepting commit was unknown.
_UNFINISHED = """
SELECT id::text FROM runs
WHERE tenant = %(tenant)s AND thread_id = %(thread_id)s AND branch_id = %(branch_id)s AND ended_at IS NULL
AND id <> %(id)s LIMIT 1"""

_CONTINUES: Final = b"""
SELECT FROM branches WHERE tenant = %(tenant)s AND thread_id = %(thread_id)s AND id = %(branch_id)s AND tip = %(at)s
AND NOT EXISTS (SELECT FROM runs WHERE tenant = %(tenant)s AND thread_id = %(thread_id)s AND branch_id = %(branch_id)s
    AND ended_at IS NULL AND id <> %(id)s)"""

# Lock order: the run before its branch, when a run ends and when it is interrupted. This is free of deadlocks only if
# no other run is inserted between the two locks, so acceptances on a thread are serialised by an advisory lock.
_TAKE_TURN: Final = b"SELECT pg_advisory_xact_lock(hashtextextended(%(tenant)s || '/' || %(thread_id)s, 0))"
_LOCK = """
SELECT FROM runs JOIN threads ON threads.tenant = runs.tenant AND threads.id = runs.thread_id
WHERE runs.tenant = %(tenant)s AND runs.thread_id = %(thread_id)s
    AND runs.branch_id = coalesce(%(branch)s::text, threads.branch)
AND runs.ended_at IS NULL ORDER BY runs.arrival FOR UPDATE OF runs"""

# A waiting run becomes queued: if it is not ended directly, the sweep gives it to a worker, which ends it.
_CANCEL_EARLIER = f"""
WITH flagged AS (
    UPDATE runs SET cancel_requested = true, status = CASE WHEN status = 'waiting' THEN 'queued' ELSE status END
    WHERE tenant = %(tenant)s AND thread_id = %(thread_id)s AND branch_id = %(branch_id)s AND ended_at IS NULL
    AND arrival < %(arrival)s RETURNING status)
SELECT pg_notify('{CANCEL_CHANNEL}', '') FROM flagged WHERE status = 'running'"""  # noqa: S608 - our own text


async def take_turn(connection: AsyncConnection[Any], place: Mapping[str, Any]) -> None:
    """Wait for the other acceptances on a thread, and changes of it, until they are committed.

    A statement of its own: the next one sees what they wrote. `place` has the tenant and the thread.
    """
    await connection.execute(_TAKE_TURN, place)


async def lock_for(connection: AsyncConnection[Any], policy: Policy, place: Mapping[str, Any]) -> None:
    """Lock the rows that the policy changes, before the branch is locked; `place` has the run's tenant and thread."""
    if policy == "interrupt":
        await connection.execute(_LOCK, place)


async def check_continues(connection: AsyncConnection[Any], place: Mapping[str, Any]) -> None:
    """Raise ConflictError unless the position `at` is the tip of a locked branch, and no other run goes on there."""
    if await (await connection.execute(_CONTINUES, place)).fetchone() is None:
        text = f"Branch {place['branch_id']!r} of thread {place['thread_id']!r} goes on after position {place['at']}."
        raise ConflictError(text, "Fork it there.")


async def apply_policy(connection: AsyncConnection[Any], policy: Policy, place: Mapping[str, Any]) -> None:
    """Apply the policy to the other runs of a locked branch; `place` has the run's tenant, branch and arrival.

    Raises ConflictError if the policy is `reject` and one of them has not ended.
    """
    if policy == "reject":
        found = await (await connection.execute(_UNFINISHED, place)).fetchone()
        if found is not None:
            raise ConflictError(
                f"Run {found[0]} of thread {place['thread_id']!r} hasn't ended yet.",
                "Wait for its end, or send `multitask_strategy`: `enqueue` or `interrupt`.",
            )
    elif policy == "interrupt":
        await connection.execute(_CANCEL_EARLIER.encode(), place)
