"""Pruning what ended runs left, with an entry in the audit trail."""

from dataclasses import dataclass

from starling.core.principal import SHARED
from starling.infra.postgres.audit import Actor, AuditedChange, record
from starling.infra.postgres.engine import Engine, changing
from starling.infra.postgres.retention import PruneSelection, Retention, RetentionReport

STATEMENT_SECONDS = 600  # counting the old rows of a large database is one statement; deletions are small


@dataclass(frozen=True, slots=True)
class RetentionService:
    """Prunes rows of ended runs."""

    engine: Engine
    repository: Retention

    async def prune(self, which: PruneSelection, actor: Actor, *, dry_run: bool = False) -> RetentionReport:
        """Delete the selected rows, or with `dry_run` only count them. Raises DatabaseUnavailableError."""
        if dry_run:
            return await self.repository.preview(which)
        report = await self.repository.prune(which)
        if report.total:
            detail = {"before": report.before.isoformat(), "runs": report.runs, "rows": dict(report.rows)}
            async with changing(self.engine) as connection:
                await record(connection, actor, AuditedChange("db.prune", which.tenant or SHARED, detail))
        return report
