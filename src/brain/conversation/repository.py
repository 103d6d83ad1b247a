"""Queries over the states of a branch."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from brain.conversation.states import BaseState, Envelope, decode
from starling.core.runs import Run
from starling.infra.postgres.engine import translated
from starling.infra.postgres.runs import Connection
from starling.infra.postgres.tables import states

_PUSH = """
WITH moved AS (
    UPDATE branches SET tip = tip + %(count)s
    WHERE tenant = %(tenant)s AND thread_id = %(thread_id)s AND id = %(branch_id)s
    RETURNING tenant, thread_id, id, tip - %(count)s AS tip)
INSERT INTO states (tenant, thread_id, branch_id, position, run_id, v, t, ts, data, compressed)
SELECT moved.tenant, moved.thread_id, moved.id, moved.tip + item.ordinality, %(run_id)s, item.v, item.t, item.ts,
    item.data, item.compressed
FROM moved, unnest(%(v)s::smallint[], %(t)s::text[], %(ts)s::float8[], %(data)s::bytea[], %(compressed)s::bool[])
    WITH ORDINALITY AS item (v, t, ts, data, compressed, ordinality)"""


async def push(connection: Connection, run: Run, envelopes: Sequence[Envelope]) -> None:
    """Append states to the run's branch, in the transaction of the connection."""
    values = {
        "tenant": run.tenant,
        "thread_id": run.thread_id,
        "branch_id": run.branch_id,
        "run_id": run.id,
        "count": len(envelopes),
        "v": [item.v for item in envelopes],
        "t": [item.t for item in envelopes],
        "ts": [item.ts for item in envelopes],
        "data": [item.data for item in envelopes],
        "compressed": [item.compressed for item in envelopes],
    }
    await connection.execute(_PUSH, values)


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
