"""What forks of a run begin with, as it is stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starling.core.errors import NotFoundError
from starling.core.runs import RunConfig
from starling.infra.postgres.engine import Repository, execute_autocommit, fetch_autocommit
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.writer import JournalEntry

_ORIGINAL: Final = """
WITH RECURSIVE line (origin, trimmed) AS (
    SELECT forked_from ->> 'run', trimmed FROM runs WHERE tenant = %(tenant)s AND id = %(id)s
    UNION ALL
    SELECT forked_from ->> 'run', runs.trimmed FROM line JOIN runs
        ON runs.tenant = %(tenant)s AND runs.id = line.origin::uuid)
SELECT thread_id, epoch, input, config, ended_at IS NOT NULL, build IS NOT NULL OR direct_call IS NOT NULL,
    (SELECT bool_or(trimmed > 0) OR NOT bool_or(origin IS NULL) FROM line)
FROM runs WHERE tenant = %(tenant)s AND id = %(id)s"""

# Of decisions that were not completed, only the path: answers of models may be long.
_ENTRIES: Final = """
SELECT path, kind, position, index, request_hash, CASE WHEN kind IN ('result', 'inherited') THEN data ELSE '{}' END,
    created_at
FROM journal WHERE tenant = %(tenant)s AND run_id = %(id)s
    AND (kind IN ('result', 'inherited') AND strpos(path, '/') = 0 OR starts_with(path, 'supervisor/'))"""


@dataclass(frozen=True, slots=True)
class Original:
    """A run that is to be forked.

    `is_unplanned`: it builds a team, or is a single tool call. `is_pruned`: it isn't known any more what it, or a run
    that it is a fork of, sent.
    """

    thread_id: str
    epoch: int
    input: str
    config: RunConfig
    has_ended: bool
    is_unplanned: bool
    is_pruned: bool


class ForkRepository(Repository):
    """Reads originals. Raises DatabaseUnavailableError."""

    async def original(self, key: RunKey) -> Original:
        """Return a run. Raises NotFoundError, also for runs of other tenants."""
        row = await execute_autocommit(self._engine, _ORIGINAL, {"tenant": key.tenant, "id": key.id})
        if row is None:
            raise NotFoundError("run", key.id)
        thread, epoch, text, config, *known = row
        return Original(thread, epoch, text, RunConfig.model_validate(config, extra="ignore"), *known)

    async def entries(self, key: RunKey) -> Sequence[JournalEntry]:
        """Return the decisions and outcomes in a run's journal; the first without data where they weren't completed."""
        rows = await fetch_autocommit(self._engine, _ENTRIES, {"tenant": key.tenant, "id": key.id})
        return [JournalEntry(*row, at=at) for *row, at in rows]
