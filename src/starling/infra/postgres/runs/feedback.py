"""Feedback on runs, and the scores of runs that Langfuse has not got yet."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import TextClause, select, text

from starling.core.errors import NotFoundError
from starling.core.run_document.document import Feedback
from starling.core.tracing import USER_FEEDBACK, TraceScore, outcome_scores
from starling.infra.postgres.audit import Actor, AuditedChange, record
from starling.infra.postgres.engine import Repository
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.writer import Clause
from starling.infra.postgres.tables.run_records import feedback

FEEDBACK_CHANNEL: Final = "starling_feedback"

_GIVE = text("""
INSERT INTO feedback (tenant, run_id, principal, score, comment)
SELECT tenant, id, :principal, :score, :comment FROM runs WHERE tenant = :tenant AND id = :run_id
ON CONFLICT (tenant, run_id, principal) DO UPDATE SET
    score = EXCLUDED.score, comment = EXCLUDED.comment, updated_at = now(), due_at = now(), sent_at = NULL
RETURNING principal, score, comment, created_at, updated_at""")
_NOTIFY = text(f"NOTIFY {FEEDBACK_CHANNEL}")


class FeedbackRepository(Repository):
    """Feedback in Postgres."""

    async def give(self, key: RunKey, score: float, comment: str, actor: Actor) -> Feedback:
        """Store the actor's feedback on a run in place of an earlier one. Raises NotFoundError."""
        values = {"tenant": key.tenant, "run_id": key.id, "principal": actor.name, "score": score, "comment": comment}
        async with self.changing() as connection:
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
        async with self.reading() as connection:
            return [Feedback(*row) for row in await connection.execute(query)]


DELIVERY_DAYS: Final = 7  # older scores are not sent
_LEASE_SECONDS: Final = 60

type Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class UnsentScores:
    """The scores of one row that were not sent, which `place` identifies. Expired ones are too old to be sent."""

    kind: str
    place: Values
    run_id: str
    trace_id: str
    scores: Sequence[TraceScore]
    expired: bool


@dataclass(frozen=True, slots=True)
class _Kind:
    """The statements for one kind of row; `place` names the columns that identify one."""

    take: TextClause
    sent: TextClause
    given_up: TextClause
    place: Sequence[str]
    scores: Callable[[Values], Sequence[TraceScore]]


def _feedback(row: Values) -> Sequence[TraceScore]:
    """Return the score, with the moment of the principal's first feedback so that each version replaces the former."""
    return [TraceScore(USER_FEEDBACK, row["score"], row["comment"], row["created_at"], row["principal"])]


def _outcome(row: Values) -> Sequence[TraceScore]:
    found = outcome_scores(row["status"], row["code"], row["reply"])
    return [TraceScore(name, value, comment, row["ended_at"]) for name, value, comment in found]


_TAKE_FEEDBACK = text("""
WITH taken AS (
    UPDATE feedback SET due_at = now() + make_interval(secs => :lease)
    WHERE (tenant, run_id, principal) IN (
        SELECT tenant, run_id, principal FROM feedback
        WHERE sent_at IS NULL AND due_at <= now()
        ORDER BY due_at LIMIT :limit FOR UPDATE SKIP LOCKED)
    RETURNING *)
SELECT taken.tenant, taken.run_id::text, taken.principal, taken.score, taken.comment, taken.created_at,
    taken.updated_at, runs.trace_id, taken.updated_at < now() - make_interval(days => :days) AS expired
FROM taken JOIN runs ON runs.tenant = taken.tenant AND runs.id = taken.run_id""")
_SENT_FEEDBACK = text("""
UPDATE feedback SET sent_at = now()
WHERE tenant = :tenant AND run_id = :run_id AND principal = :principal AND updated_at = :updated_at""")
_GIVE_UP_FEEDBACK = text("""
UPDATE feedback SET due_at = 'infinity'
WHERE tenant = :tenant AND run_id = :run_id AND principal = :principal AND updated_at = :updated_at""")

_TAKE_STATUS = text("""
WITH taken AS (
    UPDATE unsent_status_scores SET due_at = now() + make_interval(secs => :lease)
    WHERE (tenant, run_id) IN (
        SELECT tenant, run_id FROM unsent_status_scores WHERE due_at <= now()
        ORDER BY due_at LIMIT :limit FOR UPDATE SKIP LOCKED)
    RETURNING *)
SELECT taken.tenant, taken.run_id::text, runs.status, runs.result ->> 'code' AS code,
    runs.result ->> 'reply' AS reply, runs.ended_at, runs.trace_id,
    runs.ended_at < now() - make_interval(days => :days) AS expired
FROM taken JOIN runs ON runs.tenant = taken.tenant AND runs.id = taken.run_id""")
_DELETE_STATUS = text("DELETE FROM unsent_status_scores WHERE tenant = :tenant AND run_id = :run_id")

_KINDS: Final = {
    "feedback": _Kind(
        _TAKE_FEEDBACK,
        _SENT_FEEDBACK,
        _GIVE_UP_FEEDBACK,
        ("tenant", "run_id", "principal", "updated_at"),
        _feedback,
    ),
    "status": _Kind(_TAKE_STATUS, _DELETE_STATUS, _DELETE_STATUS, ("tenant", "run_id"), _outcome),
}

# A process that only ends runs doesn't know whether a worker sends scores. Where none does, the rows stay, so
# each new one replaces expired ones: there are never more than the last days make.
STATUS_UNSENT: Final = Clause(
    f"""
unsent AS (INSERT INTO unsent_status_scores (tenant, run_id) SELECT tenant, id FROM fenced),
expired AS (
    DELETE FROM unsent_status_scores WHERE (tenant, run_id) IN (
        SELECT tenant, run_id FROM unsent_status_scores WHERE due_at < now() - interval '{DELIVERY_DAYS} days'
        ORDER BY due_at LIMIT 2 FOR UPDATE SKIP LOCKED))""",  # noqa: S608 - our own text
    {},
)
"""The clause that leaves the status of an ending run to be sent, in the transaction that ends it."""


class UnsentScoreRepository(Repository):
    """Unsent scores in Postgres. Each public method is one transaction."""

    async def take(self, limit: int) -> Sequence[UnsentScores]:
        """Return rows that are due, at most `limit` of each kind; other callers don't get them for a minute."""
        values = {"limit": limit, "lease": _LEASE_SECONDS, "days": DELIVERY_DAYS}
        found: list[UnsentScores] = []
        async with self.changing() as connection:
            for name, kind in _KINDS.items():
                for row in [{**row} for row in (await connection.execute(kind.take, values)).mappings()]:
                    place = {column: row[column] for column in kind.place}
                    scores = kind.scores(row)
                    found.append(UnsentScores(name, place, row["run_id"], row["trace_id"], scores, row["expired"]))
        return found

    async def settle(self, sent: Sequence[UnsentScores], given_up: Sequence[UnsentScores]) -> None:
        """Mark rows as sent or as given up, except feedback that was replaced since it was taken."""
        async with self.changing() as connection:
            for name, kind in _KINDS.items():
                for statement, settled in ((kind.sent, sent), (kind.given_up, given_up)):
                    places = [one.place for one in settled if one.kind == name]
                    places.sort(key=lambda place: [str(value) for value in place.values()])  # all lock in one order
                    if places:
                        await connection.execute(statement, places)
