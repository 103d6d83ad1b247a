"""The number of unfinished runs by status over all tenants, for metrics."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import func, select

from starling.core.runs import RunStatus
from starling.infra.postgres.engine import Engine, translated
from starling.infra.postgres.tables import runs


@dataclass(frozen=True, slots=True)
class Backlog:
    """The number of unfinished runs by status, and the seconds that the first queued run has waited for a worker.

    A run that waits for an earlier one of its thread, or for its tenant's limit, doesn't wait for a worker yet.
    """

    unfinished: Mapping[RunStatus, int]
    oldest_seconds: float


async def backlog(engine: Engine) -> Backlog:
    """Count the unfinished runs. Raises DatabaseUnavailableError."""
    seconds = func.extract("epoch", func.max(func.now() - runs.c.admitted_at))
    query = select(runs.c.status, func.count(), seconds).where(runs.c.ended_at.is_(None)).group_by(runs.c.status)
    with translated():
        async with engine.connect() as connection:
            found = {RunStatus(row[0]): (row[1], float(row[2] or 0)) for row in await connection.execute(query)}
    _, oldest = found.get(RunStatus.QUEUED, (0, 0.0))
    return Backlog({status: count for status, (count, _) in found.items()}, oldest)
