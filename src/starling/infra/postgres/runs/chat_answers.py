"""Answers to clients that keep no state here: found by the messages before them, and requests that are repeated."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.run_status import RunStatus
from starling.infra.postgres.engine import execute_autocommit
from starling.infra.postgres.runs.acceptance import IdempotencyKey, RunKey

_STORE: Final = """
INSERT INTO chat_answers (tenant, hash, run_id) VALUES (%(tenant)s, %(hash)s, %(run)s)
ON CONFLICT (tenant, hash) DO UPDATE SET run_id = excluded.run_id, created_at = now() RETURNING run_id"""

# A rewind splits the states of a run: the later ones are on a hidden branch.
_PLACE: Final = """
SELECT runs.id::text, runs.thread_id, branches.id, branches.hidden, runs.status, runs.result ->> 'reply', begin, upto
FROM runs CROSS JOIN LATERAL (
    SELECT min(position) AS begin, max(position + length - 1) AS upto,
        (array_agg(branch_id ORDER BY position DESC))[1] AS branch_id
    FROM states WHERE states.tenant = runs.tenant AND states.thread_id = runs.thread_id AND states.run_id = runs.id
    ) AS stored
JOIN branches ON branches.tenant = runs.tenant AND branches.thread_id = runs.thread_id
    AND branches.id = coalesce(stored.branch_id, runs.branch_id)
WHERE runs.tenant = %(tenant)s AND runs.id = """
_OF_ANSWER: Final = _PLACE + "(SELECT run_id FROM chat_answers WHERE tenant = %(tenant)s AND hash = %(hash)s)"  # noqa: S608
_OF_RUN: Final = _PLACE + "%(run)s"

_JOIN: Final = """
UPDATE idempotency_keys SET created_at = now() WHERE tenant = %(tenant)s AND key = %(key)s
RETURNING run_id::text, request_hash, created_at"""
_FORGET: Final = """
DELETE FROM idempotency_keys WHERE tenant = %(tenant)s AND key = %(key)s AND run_id = %(run)s RETURNING key"""
_KEEP: Final = """
INSERT INTO idempotency_keys (tenant, key, request_hash, run_id)
VALUES (%(tenant)s, %(key)s, %(request_hash)s, %(run)s)
ON CONFLICT (tenant, key) DO UPDATE
    SET request_hash = excluded.request_hash, run_id = excluded.run_id, created_at = now()
RETURNING run_id::text, request_hash, created_at"""

# A key has the time of its run, which it was stored with, or that of the last request that joined it.
_IS_JOINED: Final = """
SELECT FROM idempotency_keys JOIN runs ON runs.tenant = idempotency_keys.tenant AND runs.id = idempotency_keys.run_id
WHERE idempotency_keys.tenant = %(tenant)s AND idempotency_keys.key = %(key)s AND runs.id = %(run)s
    AND idempotency_keys.created_at > coalesce(%(since)s, runs.created_at)"""


@dataclass(frozen=True, slots=True)
class RunPlace:
    """A run on its thread: its branch, and the positions of its first and last states, None until it has ended.

    `hidden`: a rewind left its states behind. `reply` is None until it has ended, too.
    """

    run_id: str
    thread: str
    branch: str
    hidden: bool
    status: RunStatus
    reply: str | None
    begin: int | None
    end: int | None


@dataclass(frozen=True, slots=True)
class BegunRequest:
    """The run that an idempotency key belongs to, the digest of its request, and when it was last joined."""

    run_id: str
    request_hash: str
    joined_at: datetime


class ChatAnswerRepository:
    """Queries over the answers of chats. Each method is one statement. Raises DatabaseUnavailableError."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def store(self, key: RunKey, answer_hash: str) -> None:
        """Store that a run gave an answer; the last one of several runs that gave it is found."""
        await self._row(_STORE, key.tenant, hash=answer_hash, run=key.id)

    async def place_of_answer(self, tenant: str, answer_hash: str) -> RunPlace | None:
        """Return where the run is that gave an answer, None if none did."""
        return _place(await self._row(_OF_ANSWER, tenant, hash=answer_hash))

    async def place_of_run(self, key: RunKey) -> RunPlace | None:
        """Return where a run is, None if there is none."""
        return _place(await self._row(_OF_RUN, key.tenant, run=key.id))

    async def join(self, tenant: str, idempotency_key: str) -> BegunRequest | None:
        """Return what a request with this key began, which another one waits for from now on, or None."""
        row = await self._row(_JOIN, tenant, key=idempotency_key)
        return BegunRequest(*row) if row else None

    async def keep(self, key: RunKey, idempotency: IdempotencyKey) -> BegunRequest:
        """Store that a request with this key waits for a run, whichever the key belonged to before."""
        values = {"key": idempotency.text, "request_hash": idempotency.request_hash, "run": key.id}
        row = await self._row(_KEEP, key.tenant, **values)
        assert row is not None
        return BegunRequest(*row)

    async def forget(self, key: RunKey, idempotency_key: str) -> None:
        """Have the next request with this key begin a run of its own."""
        await self._row(_FORGET, key.tenant, key=idempotency_key, run=key.id)

    async def is_joined(self, key: RunKey, idempotency_key: str, since: datetime | None) -> bool:
        """Return whether a request with this key joined the run after a moment, without one after its acceptance."""
        values = {"key": idempotency_key, "run": key.id, "since": since}
        return await self._row(_IS_JOINED, key.tenant, **values) is not None

    async def _row(self, statement: str, tenant: str, **values: Any) -> tuple[Any, ...] | None:
        return await execute_autocommit(self._engine, statement, {"tenant": tenant, **values})


def _place(row: tuple[Any, ...] | None) -> RunPlace | None:
    if row is None:
        return None
    run_id, thread, branch, hidden, status, *rest = row
    return RunPlace(run_id, thread, branch, hidden, RunStatus(status), *rest)
