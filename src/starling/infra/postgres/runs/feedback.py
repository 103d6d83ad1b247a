"""Feedback on runs: the latest of each principal, and its delivery as scores."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import select, text

from starling.core.errors import NotFoundError
from starling.infra.postgres.audit import Actor, AuditedChange, record
from starling.infra.postgres.engine import Engine, translated
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.tables import feedback

FEEDBACK_CHANNEL: Final = "starling_feedback"
_DELIVERY_DAYS, _LEASE_SECONDS = 7, 60.0

_GIVE = text("""
INSERT INTO feedback (tenant, run_id, principal, score, comment)
SELECT tenant, id, :principal, :score, :comment FROM runs WHERE tenant = :tenant AND id = :run_id
ON CONFLICT (tenant, run_id, principal) DO UPDATE SET
    score = EXCLUDED.score, comment = EXCLUDED.comment, updated_at = now(), due_at = now(), sent_at = NULL
RETURNING principal, score, comment, created_at, updated_at""")
_NOTIFY = text(f"NOTIFY {FEEDBACK_CHANNEL}")
_TAKE = text("""
WITH taken AS (
    UPDATE feedback SET due_at = now() + make_interval(secs => :lease)
    WHERE (tenant, run_id, principal) IN (
        SELECT tenant, run_id, principal FROM feedback
        WHERE sent_at IS NULL AND due_at <= now() AND updated_at > now() - make_interval(days => :days)
        ORDER BY due_at LIMIT :limit FOR UPDATE SKIP LOCKED)
    RETURNING tenant, run_id, principal, score, comment, created_at, updated_at)
SELECT taken.tenant, taken.run_id::text, taken.principal, taken.score, taken.comment, taken.created_at,
    taken.updated_at, runs.trace_id
FROM taken JOIN runs ON runs.tenant = taken.tenant AND runs.id = taken.run_id""")
_SENT = text("""
UPDATE feedback SET sent_at = now()
WHERE tenant = :tenant AND run_id = :run_id AND principal = :principal AND updated_at = :updated_at""")


@dataclass(frozen=True, slots=True)
class Feedback:
    """What a principal says of a run: a score from 0 (useless) to 1 (as it should be), and a comment."""

    by: str
    score: float
    comment: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class UnsentFeedback:
    """Feedback that was not delivered since it was given, with the trace of its run."""

    key: RunKey
    feedback: Feedback
    trace_id: str


class FeedbackRepository:
    """Feedback in Postgres."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def give(self, key: RunKey, score: float, comment: str, actor: Actor) -> Feedback:
        """Store the actor's feedback on a run in place of an earlier one. Raises NotFoundError."""
        values = {"tenant": key.tenant, "run_id": key.id, "principal": actor.name, "score": score, "comment": comment}
        with translated():
            async with self._engine.begin() as connection:
                row = (await connection.execute(_GIVE, values)).one_or_none()
                if row is None:
                    raise NotFoundError("run", key.id)
                await record(connection, actor, AuditedChange("run.feedback", key.id, {"score": score}))
                await connection.execute(_NOTIFY)
                return Feedback(*row)

    async def of_run(self, key: RunKey) -> Sequence[Feedback]:
        """Return the feedback on a run, oldest first."""
        columns = (feedback.c.principal, feedback.c.score, feedback.c.comment)
        query = (
            select(*columns, feedback.c.created_at, feedback.c.updated_at)
            .where(feedback.c.tenant == key.tenant, feedback.c.run_id == key.id)
            .order_by(feedback.c.created_at, feedback.c.principal)
        )
        with translated():
            async with self._engine.connect() as connection:
                return [Feedback(*row) for row in await connection.execute(query)]

    async def take_unsent(self, limit: int) -> Sequence[UnsentFeedback]:
        """Return feedback of the last days that has to be delivered; other callers don't get it for a minute."""
        values: dict[str, Any] = {"limit": limit, "lease": _LEASE_SECONDS, "days": _DELIVERY_DAYS}
        with translated():
            async with self._engine.begin() as connection:
                rows = (await connection.execute(_TAKE, values)).all()
        return [UnsentFeedback(RunKey(row[0], row[1]), Feedback(*row[2:7]), row[7]) for row in rows]

    async def mark_sent(self, delivered: Sequence[UnsentFeedback]) -> None:
        """Mark feedback as delivered, unless it was replaced since it was taken."""
        rows = [
            {
                "tenant": one.key.tenant,
                "run_id": one.key.id,
                "principal": one.feedback.by,
                "updated_at": one.feedback.updated_at,
            }
            for one in delivered
        ]
        with translated():
            async with self._engine.begin() as connection:
                await connection.execute(_SENT, rows)
