"""Queries over the states of a branch."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from brain.conversation.states import BaseState, Envelope, decode
from starling.core.runs import Run
from starling.infra.postgres.engine import translated
from starling.infra.postgres.runs import Connection
from starling.infra.postgres.tables import states

_MOVE_TIP = """
UPDATE branches SET tip = tip + %(count)s WHERE tenant = %(tenant)s AND thread_id = %(thread_id)s AND id = %(branch_id)s
RETURNING tip - %(count)s"""

_PUSH = """
INSERT INTO states (tenant, thread_id, branch_id, position, run_id, v, t, ts, data, compressed)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"""


async def push(connection: Connection, run: Run, envelopes: Sequence[Envelope]) -> None:
    """Append states to the run's branch, in the transaction of the connection."""
    place = {"tenant": run.tenant, "thread_id": run.thread_id, "branch_id": run.branch_id}
    cursor = await connection.execute(_MOVE_TIP, place | {"count": len(envelopes)})
    row = await cursor.fetchone()
    tip: int = row[0] if row else 0
    key = (run.tenant, run.thread_id, run.branch_id)
    rows = [
        (*key, tip + offset, run.id, item.v, item.t, item.ts, item.data, item.compressed)
        for offset, item in enumerate(envelopes, start=1)
    ]
    async with connection.cursor() as inserting:
        await inserting.executemany(_PUSH, rows)


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
