"""Answers to clients that keep no state here: found by the messages before them, and requests that are repeated."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from starling.core.conversation.openai_messages import ChatMessage
from starling.infra.postgres.engine import Repository, execute_autocommit, transaction
from starling.infra.postgres.runs.acceptance import IdempotencyKey, RunKey, reserve

_STORE: Final = """
INSERT INTO chat_answers (tenant, hash, run_id, position) VALUES (%(tenant)s, %(hash)s, %(run)s, %(position)s)
ON CONFLICT (tenant, hash) DO UPDATE
    SET run_id = excluded.run_id, position = excluded.position, created_at = now() RETURNING run_id"""

# A rewind splits the states of a run: the later ones are on a hidden branch.
_PLACE: Final = """
WITH given AS (
    SELECT run_id, position FROM chat_answers WHERE tenant = %(tenant)s AND hash = %(hash)s
    UNION ALL SELECT %(run)s::uuid, NULL WHERE %(run)s::uuid IS NOT NULL)
SELECT runs.thread_id, branches.id, coalesce(coalesce(own.before, branches.tip) + given.position, own.upto),
    runs.id::text, runs.ended_at IS NULL, given.position, branches.hidden
FROM given JOIN runs ON runs.tenant = %(tenant)s AND runs.id = given.run_id CROSS JOIN LATERAL (
    SELECT min(position) - 1 AS before, max(position + length - 1) AS upto FROM states
    WHERE states.tenant = runs.tenant AND states.thread_id = runs.thread_id AND states.run_id = runs.id) AS own
JOIN branches ON branches.tenant = runs.tenant AND branches.thread_id = runs.thread_id AND branches.id = coalesce((
    SELECT branch_id FROM states
    WHERE states.tenant = runs.tenant AND states.thread_id = runs.thread_id AND states.run_id = runs.id
        AND (given.position IS NULL OR states.position <= own.before + given.position)
    ORDER BY states.position DESC LIMIT 1), runs.branch_id)"""

# The key of a run itself has the time when a request last said that it waits for the run.
_TOUCH: Final = """
INSERT INTO idempotency_keys (tenant, key, request_hash, run_id)
VALUES (%(tenant)s, 'followed ' || %(run)s, '', %(run)s::uuid)
ON CONFLICT (tenant, key) DO UPDATE SET created_at = now() RETURNING key"""
_IS_LEFT: Final = """
SELECT FROM runs WHERE tenant = %(tenant)s AND id = %(run)s::uuid AND status <> 'waiting' AND NOT EXISTS (
    SELECT FROM idempotency_keys WHERE tenant = %(tenant)s AND key = 'followed ' || %(run)s
    AND created_at > now() - make_interval(secs => %(seconds)s))"""


@dataclass(frozen=True, slots=True)
class ChatPlace:
    """Where a request goes: without a thread, to one of its own; without a branch, to the current one of the thread.

    `at` is the position that it follows. `run` gave the last answer there, or goes on there if `live`: `asked` is how
    many states it had with the question that is answered, None where any is. `hidden`: a rewind left the place behind.
    `imported` begins the thread.
    """

    thread: str = ""
    branch: str | None = None
    at: int | None = None
    run: str = ""
    live: bool = False
    asked: int | None = None
    hidden: bool = False
    imported: Sequence[ChatMessage] = ()

    @property
    def is_open(self) -> bool:
        """Whether a run may be accepted there as it is."""
        return not (self.imported or self.hidden or (self.live and self.at is not None))


class ChatAnswerRepository(Repository):
    """Queries over the answers of chats. Raises DatabaseUnavailableError."""

    async def store(self, key: RunKey, answer_hash: str, asked: int | None) -> None:
        """Store that a run gave an answer; the last one of several runs that gave it is found.

        `asked` is how many states the run has up to the question that the answer is, None where it has ended.
        """
        await self._row(_STORE, key.tenant, hash=answer_hash, run=key.id, position=asked)

    async def place(self, tenant: str, *, answer_hash: str = "", run: str | None = None) -> ChatPlace | None:
        """Return where an answer was given, or where a run ends; None if there is no such one."""
        row = await self._row(_PLACE, tenant, hash=answer_hash, run=run)
        return ChatPlace(*row) if row else None

    async def keep(self, key: RunKey, idempotency: IdempotencyKey) -> None:
        """Store that a request with this key waits for a run, whichever the key belonged to before."""
        async with transaction(self._engine) as connection:
            await reserve(connection, key.tenant, replace(idempotency, replaces=True), key.id)

    async def touch(self, key: RunKey) -> None:
        """Store that a request waits for a run now."""
        await self._row(_TOUCH, key.tenant, run=key.id)

    async def is_left(self, key: RunKey, seconds: float) -> bool:
        """Return whether no request has waited for a run in the last `seconds`, and it waits for no answer itself."""
        return await self._row(_IS_LEFT, key.tenant, run=key.id, seconds=seconds) is not None

    async def _row(self, statement: str, tenant: str, **values: Any) -> tuple[Any, ...] | None:
        return await execute_autocommit(self._engine, statement, {"tenant": tenant, **values})
