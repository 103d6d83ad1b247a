"""Pruning what ended runs left, and threads that nobody used since, with an entry in the audit trail."""

from contextlib import suppress
from dataclasses import dataclass, replace

from starling.core.errors import ConflictError, NotFoundError
from starling.core.principal import SHARED
from starling.infra.postgres.audit import Actor, AuditedChange, record
from starling.infra.postgres.engine import Engine, changing
from starling.infra.postgres.retention import PruneSelection, Retention, RetentionReport
from starling.infra.postgres.runs.thread_changes import ThreadChanges

STATEMENT_SECONDS = 600  # counting the old rows of a large database is one statement; deletions are small


@dataclass(frozen=True, slots=True)
class RetentionService:
    """Prunes rows of ended runs."""

    engine: Engine
    repository: Retention
    changes: ThreadChanges

    async def prune(self, which: PruneSelection, actor: Actor, *, dry_run: bool = False) -> RetentionReport:
        """Delete the selected rows, or with `dry_run` only count them. Raises DatabaseUnavailableError."""
        threads = await self.repository.old_threads(which)
        if dry_run:
            return _with_threads(await self.repository.preview(which), len(threads))
        deleted = 0
        for tenant, thread, before in threads:
            with suppress(ConflictError, NotFoundError):  # it is used again, deleted already, or has a call in doubt
                await self.changes.delete(tenant, thread, actor, since=before)
                deleted += 1
        report = _with_threads(await self.repository.prune(which), deleted)
        if report.total:
            detail = {"before": report.before.isoformat(), "runs": report.runs, "rows": dict(report.rows)}
            async with changing(self.engine) as connection:
                await record(connection, actor, AuditedChange("db.prune", which.tenant or SHARED, detail))
        return report


def _with_threads(report: RetentionReport, threads: int) -> RetentionReport:
    return replace(report, rows={**report.rows, "threads": threads}) if threads else report
