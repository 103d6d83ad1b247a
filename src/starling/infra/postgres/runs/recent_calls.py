"""The servers that were called last, over all tenants."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import text

from starling.infra.postgres.engine import Engine, translated

_RUNS: Final = 50  # in which calls are looked for
# Both tables have the tenant first in their keys, so that each step reads a few entries of an index.
_CALLED: Final = text("""
WITH RECURSIVE tenants AS (
    (SELECT tenant FROM runs ORDER BY tenant LIMIT 1)
    UNION ALL
    SELECT (SELECT runs.tenant FROM runs WHERE runs.tenant > tenants.tenant ORDER BY runs.tenant LIMIT 1)
    FROM tenants WHERE tenants.tenant IS NOT NULL
), latest AS (
    SELECT run.tenant, run.id
    FROM tenants CROSS JOIN LATERAL
        (SELECT tenant, id FROM runs WHERE runs.tenant = tenants.tenant ORDER BY id DESC LIMIT :runs) AS run
    ORDER BY run.id DESC LIMIT :runs
)
SELECT events.tenant, split_part(events.data ->> 'name', '.', 1) AS server
FROM latest JOIN events ON events.tenant = latest.tenant AND events.run_id = latest.id AND events.type = 'tool_start'
GROUP BY 1, 2
ORDER BY max(events.created_at) DESC""")


@dataclass(frozen=True, slots=True)
class CalledServer:
    """A server that was called for a tenant."""

    tenant: str
    server: str


class RecentCalls:
    """Reads which servers were called by the latest runs."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")  # a read needs no BEGIN

    async def servers(self) -> Sequence[CalledServer]:
        """Return the servers and tenants of the last 50 runs, latest call first. Raises DatabaseUnavailableError."""
        with translated():
            async with self._engine.connect() as connection:
                return [CalledServer(*row) for row in await connection.execute(_CALLED, {"runs": _RUNS})]
