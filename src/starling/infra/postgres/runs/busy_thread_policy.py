"""What a new run means for those of its branch that haven't ended. Parts of the transaction that accepts it."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from psycopg import AsyncConnection

from starling.core.errors import ConflictError

type Policy = Literal["enqueue", "reject", "interrupt"]
"""It waits for them, isn't accepted beside them, or has them cancelled."""

CANCELS: Final = "starling_cancels"  # rings where a run that somebody works on is to be cancelled

# The run itself may be there already, where the commit that accepted it was in doubt.
_UNFINISHED = """
SELECT id::text FROM runs
WHERE tenant = %(tenant)s AND thread_id = %(thread_id)s AND branch_id = %(branch_id)s AND ended_at IS NULL
AND id <> %(id)s LIMIT 1"""

# Whoever ends a run locks it before its branch: so do those who interrupt it. That is safe only while no other run can
# come in between the two, which one could lock that waits for the branch: acceptances on a thread take turns.
TAKE_TURN: Final = "pg_advisory_xact_lock(hashtextextended(%(tenant)s || '/' || %(thread_id)s, 0))"
_TAKE_TURN = f"SELECT {TAKE_TURN}"
_LOCK = """
SELECT FROM runs JOIN threads ON threads.tenant = runs.tenant AND threads.id = runs.thread_id
WHERE runs.tenant = %(tenant)s AND runs.thread_id = %(thread_id)s AND runs.branch_id = threads.branch
AND runs.ended_at IS NULL ORDER BY runs.arrival FOR UPDATE OF runs"""

# A waiting one becomes a queued one: if nobody comes to take it, the sweep gives it to a worker, which ends it.
_CANCEL_EARLIER = f"""
WITH flagged AS (
    UPDATE runs SET cancel_requested = true, status = CASE WHEN status = 'waiting' THEN 'queued' ELSE status END
    WHERE tenant = %(tenant)s AND thread_id = %(thread_id)s AND branch_id = %(branch_id)s AND ended_at IS NULL
    AND arrival < %(arrival)s RETURNING status)
SELECT pg_notify('{CANCELS}', '') FROM flagged WHERE status = 'running'"""  # noqa: S608 - our own text


async def lock_for(connection: AsyncConnection[Any], policy: Policy, place: Mapping[str, Any]) -> None:
    """Lock what the policy will change, before the branch is locked; `place` is a row's tenant and thread."""
    if policy == "interrupt":
        await connection.execute(_TAKE_TURN.encode(), place)  # before the snapshot in which the runs are looked for
        await connection.execute(_LOCK, place)


async def apply_policy(connection: AsyncConnection[Any], policy: Policy, place: Mapping[str, Any]) -> None:
    """Look after the other runs of a branch, under its lock; `place` is a row's tenant, branch and arrival.

    Raises ConflictError where the policy is `reject` and one of them hasn't ended.
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
