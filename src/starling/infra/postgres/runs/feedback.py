"""Feedback on runs: the latest of each principal."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import select, text

from starling.core.errors import NotFoundError
from starling.core.run_document.document import Feedback
from starling.infra.postgres.audit import Actor, AuditedChange, record
from starling.infra.postgres.engine import Engine, translated
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.tables import feedback

FEEDBACK_CHANNEL: Final = "starling_feedback"

_GIVE = text("""
INSERT INTO feedback (tenant, run_id, principal, score, comment)
SELECT tenant, id, :principal, :score, :comment FROM runs WHERE tenant = :tenant AND id = :run_id
ON CONFLICT (tenant, run_id, principal) DO UPDATE SET
    score = EXCLUDED.score, comment = EXCLUDED.comment, updated_at = now(), due_at = now(), sent_at = NULL
RETURNING principal, score, comment, created_at, updated_at""")
_NOTIFY = text(f"NOTIFY {FEEDBACK_CHANNEL}")


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
