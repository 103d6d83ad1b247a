"""Queries over the states of a branch."""

from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncEngine

from brain.conversation.states import BaseState, Envelope, decode
from starling.core.runs import Run
from starling.infra.postgres.engine import fetch_autocommit
from starling.infra.postgres.runs.writer import Clause

_PUSH = """
moved AS (
    UPDATE branches SET tip = tip + %(pushed)s, last_agent = coalesce(%(last_agent)s, last_agent),
        last_agents = coalesce(%(last_agents)s::text[], last_agents),
        clarifications = CASE WHEN %(unasked)s AND NOT EXISTS (
            SELECT FROM interrupts
            WHERE interrupts.tenant = fenced.tenant AND interrupts.run_id = fenced.id AND kind = 'clarification')
            THEN 0 ELSE clarifications END
    FROM fenced
    WHERE branches.tenant = fenced.tenant AND branches.thread_id = %(thread_id)s AND branches.id = %(branch_id)s
    RETURNING branches.tenant, branches.thread_id, branches.id, tip - %(pushed)s AS tip),
pushed AS (
    INSERT INTO states (tenant, thread_id, branch_id, position, run_id, v, t, ts, data, compressed)
    SELECT moved.tenant, moved.thread_id, moved.id, moved.tip + item.ordinality, %(id)s, item.v, item.t, item.ts,
        item.data, item.compressed
    FROM moved, unnest(%(v)s::smallint[], %(t)s::text[], %(ts)s::float8[], %(data)s::bytea[], %(compressed)s::bool[])
        WITH ORDINALITY AS item (v, t, ts, data, compressed, ordinality))"""


def push_states(
    run: Run, envelopes: Sequence[Envelope], *, agents: Sequence[str] = (), unasked: bool = False
) -> Clause:
    """Return what appends states to the run's branch, as a part of a flush.

    Where `unasked`, and no team of the run asked anything either, questions count anew.

    `agents` are those of the run's tasks, in order; without any, the branch keeps those of its turn before.
    """
    values = {
        "thread_id": run.thread_id,
        "branch_id": run.branch_id,
        "pushed": len(envelopes),
        "last_agent": agents[-1] if agents else None,
        "last_agents": list(dict.fromkeys(agents)) or None,
        "unasked": unasked,
        "v": [item.v for item in envelopes],
        "t": [item.t for item in envelopes],
        "ts": [item.ts for item in envelopes],
        "data": [item.data for item in envelopes],
        "compressed": [item.compressed for item in envelopes],
    }
    return Clause(_PUSH, values)


_LAST_AGENTS = """
SELECT coalesce(last_agents, array_remove(ARRAY[last_agent], NULL)) FROM branches
WHERE tenant = %(tenant)s AND thread_id = %(thread_id)s AND id = %(branch_id)s"""
_LAST = """
SELECT v, t, ts, data, compressed FROM states
WHERE tenant = %(tenant)s AND thread_id = %(thread_id)s AND branch_id = %(branch_id)s AND t = ANY(%(kinds)s)
ORDER BY position DESC LIMIT %(count)s"""


class ConversationRepository:
    """Reads branches."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def last(self, run: Run, kinds: Sequence[type[BaseState]], count: int) -> list[BaseState]:
        """Return the last states of these kinds on the run's branch, oldest first."""
        values = {
            "tenant": run.tenant,
            "thread_id": run.thread_id,
            "branch_id": run.branch_id,
            "kinds": [kind.__name__ for kind in kinds],
            "count": count,
        }
        rows = await fetch_autocommit(self._engine, _LAST, values)
        return [decode(Envelope(*row)) for row in reversed(rows)]

    async def last_agents(self, run: Run) -> list[str]:
        """Return the agents of the last turn with tasks on the run's branch."""
        values = {"tenant": run.tenant, "thread_id": run.thread_id, "branch_id": run.branch_id}
        rows = await fetch_autocommit(self._engine, _LAST_AGENTS, values)
        return list(rows[0][0]) if rows else []
