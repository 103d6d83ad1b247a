"""The latest runs of a tenant, for a person to choose from."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select

from starling.core.runs import RunStatus
from starling.infra.postgres.engine import Engine, translated
from starling.infra.postgres.tables import runs

_INPUT_CHARS = 500


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run in a list. `seconds` counts from its acceptance to its end, or to now; `input` is its beginning."""

    id: str
    thread_id: str
    status: RunStatus
    created_at: datetime
    seconds: float
    input: str


async def latest_runs(engine: Engine, tenant: str, *, limit: int) -> Sequence[RunSummary]:
    """Return the latest runs, newest first. Raises DatabaseUnavailableError."""
    seconds = func.extract("epoch", func.coalesce(runs.c.ended_at, func.now()) - runs.c.created_at)
    query = (
        select(
            runs.c.id,
            runs.c.thread_id,
            runs.c.status,
            runs.c.created_at,
            seconds,
            func.left(runs.c.input, _INPUT_CHARS),
        )
        .where(runs.c.tenant == tenant)
        .order_by(runs.c.created_at.desc(), runs.c.id.desc())
        .limit(limit)
    )
    with translated():
        async with engine.connect() as connection:
            found = await connection.execute(query)
            return [RunSummary(*row[:2], RunStatus(row.status), row.created_at, float(row[4]), row[5]) for row in found]
