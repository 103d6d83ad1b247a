"""Queries over the states of a branch."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from brain.conversation.states import BaseState, Envelope, decode
from starling.core.runs import Run
from starling.infra.postgres.engine import translated
from starling.infra.postgres.tables import states
from starling.infra.postgres.writer import Clause

_PUSH = """
moved AS (
    UPDATE branches SET tip = tip + %(pushed)s FROM fenced
    WHERE branches.tenant = fenced.tenant AND branches.thread_id = %(thread_id)s AND branches.id = %(branch_id)s
    RETURNING branches.tenant, branches.thread_id, branches.id, tip - %(pushed)s AS tip),
pushed AS (
    INSERT INTO states (tenant, thread_id, branch_id, position, run_id, v, t, ts, data, compressed)
    SELECT moved.tenant, moved.thread_id, moved.id, moved.tip + item.ordinality, %(id)s, item.v, item.t, item.ts,
        item.data, item.compressed
    FROM moved, unnest(%(v)s::smallint[], %(t)s::text[], %(ts)s::float8[], %(data)s::bytea[], %(compressed)s::bool[])
        WITH ORDINALITY AS item (v, t, ts, data, compressed, ordinality))"""


def pushing(run: Run, envelopes: Sequence[Envelope]) -> Clause:
    """Return what appends states to the run's branch, as a part of a flush."""
    values = {
        "thread_id": run.thread_id,
        "branch_id": run.branch_id,
        "pushed": len(envelopes),
        "v": [item.v for item in envelopes],
        "t": [item.t for item in envelopes],
        "ts": [item.ts for item in envelopes],
        "data": [item.data for item in envelopes],
        "compressed": [item.compressed for item in envelopes],
    }
    return Clause(_PUSH, values)


class ConversationRepository:
    """Reads branches."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")  # a read needs no BEGIN

    async def last(self, run: Run, kinds: Sequence[type[BaseState]], count: int) -> list[BaseState]:
        """Return the last states of these kinds on the run's branch, oldest first."""
        query = (
            select(states.c.v, states.c.t, states.c.ts, states.c.data, states.c.compressed)
            .where(
                states.c.tenant == run.tenant,
                states.c.thread_id == run.thread_id,
                states.c.branch_id == run.branch_id,
                states.c.t.in_([kind.__name__ for kind in kinds]),
            )
            .order_by(states.c.position.desc())
            .limit(count)
        )
        with translated():
            async with self._engine.connect() as connection:
                rows = (await connection.execute(query)).all()
        return [decode(Envelope(*row)) for row in reversed(rows)]
