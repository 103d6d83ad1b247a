"""Interrupts of runs: how they are stored, listed, answered and expired, and how their runs are queued again."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal

from psycopg.types.json import Jsonb
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.errors import ConflictError, DatabaseUnavailableError, NotFoundError
from starling.core.ids import new_id
from starling.core.json import JsonObject, storable
from starling.core.principal import Grant, Principal, Scope
from starling.core.run_document.document import RunInterrupt
from starling.core.teams.building import QUESTION
from starling.infra.postgres.audit import LOCAL
from starling.infra.postgres.availability import retry_while_unavailable
from starling.infra.postgres.engine import Repository, execute_autocommit, fetch_autocommit, transaction
from starling.infra.postgres.runs.acceptance import (
    RETRY_SECONDS,
    Connection,
    IdempotencyKey,
    IdempotencyRecord,
    RunKey,
    RunRepository,
    reserve,
)
from starling.infra.postgres.runs.writer import Clause

BATCH_LIMIT = 500  # interrupts or runs handled at once
NOT_DONE_FROM = "notDoneFrom"  # in a response schema: when, by the database's clock, the answer `not_done` is accepted

_INSERT = """
asked AS (
    INSERT INTO interrupts (tenant, id, run_id, key, kind, path, reason, message, response_schema, call, expires_at,
        code)
    SELECT fenced.tenant, item.id, fenced.id, item.key, item.kind, item.path, item.reason, item.message,
        item.response_schema, item.call, item.expires_at, item.code
    FROM fenced, jsonb_to_recordset(%(asked)s) AS item (id uuid, key text, kind text, path text, reason text,
        message text, response_schema jsonb, call jsonb, expires_at timestamptz, code text)),
counted_questions AS (
    UPDATE branches SET clarifications = clarifications + %(clarifications)s FROM fenced
    WHERE branches.tenant = fenced.tenant AND branches.thread_id = %(asked_thread)s AND branches.id = %(asked_branch)s
        AND %(clarifications)s > 0)"""

_COLUMNS = """interrupts.id::text, interrupts.run_id::text, kind, path, reason, message, response_schema, call,
    interrupts.state, interrupts.created_at, expires_at, answered_at, answered_by, code, 0,
    CASE kind WHEN 'clarification' THEN coalesce(payload ->> 'answer', '') ELSE '' END"""
_OWN = f"{_COLUMNS}, '', key, payload"
_KEY_NAME = """coalesce((SELECT name FROM keys
    WHERE keys.tenant = runs.tenant AND keys.id::text = runs.principal ->> 'key_id'), '')"""

_OF_RUN = f"SELECT {_OWN} FROM interrupts WHERE tenant = %(tenant)s AND run_id = %(id)s ORDER BY id"  # noqa: S608

_WAITING = f"""
SELECT {_COLUMNS}, {_KEY_NAME}, key, payload
FROM interrupts JOIN runs ON runs.tenant = interrupts.tenant AND runs.id = interrupts.run_id
WHERE interrupts.tenant = %(tenant)s AND interrupts.state = 'open' AND runs.ended_at IS NULL AND expires_at > now()
    AND (%(run)s::uuid IS NULL OR runs.id = %(run)s) AND (%(kind)s::text IS NULL OR kind = %(kind)s)
    AND (%(after)s::uuid IS NULL OR interrupts.id > %(after)s)
ORDER BY interrupts.id LIMIT %(limit)s"""  # noqa: S608 - our own text

_ONE = f"SELECT {_OWN} FROM interrupts WHERE tenant = %(tenant)s AND id = %(id)s"  # noqa: S608 - our own text

# Each answer locks the run row first, as the worker does when it suspends the run.
_LOCK = "SELECT ended_at IS NOT NULL FROM runs WHERE tenant = %(tenant)s AND id = %(id)s FOR UPDATE"

_ANSWERED = """
SELECT id::text, state, payload, expires_at <= now(),
    CASE WHEN (response_schema ->> %(from)s)::timestamptz > now() THEN response_schema ->> %(from)s END
FROM interrupts WHERE tenant = %(tenant)s AND run_id = %(id)s AND id = ANY(%(ids)s::uuid[])"""

_ANSWER = """
WITH answered AS (
UPDATE interrupts SET state = item.state, payload = item.payload, answered_at = now(), answered_by = %(actor)s
FROM jsonb_to_recordset(%(answers)s) AS item (id uuid, state text, payload jsonb, audit_id uuid)
WHERE interrupts.tenant = %(tenant)s AND interrupts.run_id = %(id)s AND interrupts.id = item.id
    AND interrupts.state = 'open'
RETURNING interrupts.*, item.audit_id)
INSERT INTO audit (tenant, id, actor, origin, action, target, detail)
SELECT tenant, audit_id, %(actor)s, %(origin)s, 'interrupt.answer', 'interrupt ' || id,
    jsonb_build_object('run_id', run_id, 'kind', kind, 'state', state, 'payload', payload)
FROM answered"""

_WAKE = """
UPDATE runs SET status = 'queued' WHERE tenant = %(tenant)s AND id = %(id)s AND status = 'waiting'"""

# The second statement of its transaction: it sees what was committed before the run row was locked.
_WAKE_IF_ANSWERED = """
UPDATE runs SET status = 'queued' WHERE tenant = %(tenant)s AND id = %(id)s AND status = 'waiting' AND (
    cancel_requested OR EXISTS (
        SELECT FROM interrupts WHERE tenant = %(tenant)s AND run_id = %(id)s AND id = ANY(%(ids)s::uuid[])
        AND state <> 'open'))"""

_ACTIVE = """
SELECT runs.id::text, runs.seq, runs.principal -> 'grant' FROM runs
JOIN threads ON threads.tenant = runs.tenant AND threads.id = runs.thread_id
    AND coalesce(%(branch)s::text, threads.branch) = runs.branch_id
WHERE runs.tenant = %(tenant)s AND runs.thread_id = %(thread)s AND runs.status IN ('running', 'waiting')
    AND NOT runs.cancel_requested"""
_LOCK_ACTIVE = f"{_ACTIVE} AND runs.id = %(id)s FOR UPDATE OF runs"

# The run of an audited answer, and the number of the event that asked the question.
_ANSWER_OF_AUDIT = """
SELECT events.run_id::text, events.seq FROM audit JOIN events
    ON events.tenant = audit.tenant AND events.run_id = (audit.detail ->> 'run_id')::uuid
    AND events.type = 'clarification' AND 'interrupt ' || (events.data ->> 'id') = audit.target
WHERE audit.tenant = %(tenant)s AND audit.id = %(audit_id)s"""

_GRANT = "SELECT principal -> 'grant' FROM runs WHERE tenant = %(tenant)s AND id = %(id)s"

_OPEN_OF_RUN = """
SELECT id::text, kind, path FROM interrupts
WHERE tenant = %(tenant)s AND run_id = %(id)s AND state = 'open' AND expires_at > now()"""

_ANY_LAPSED = "SELECT EXISTS (SELECT FROM interrupts WHERE state = 'open' AND expires_at <= now())"

_LAPSED = """
SELECT tenant, id::text FROM runs WHERE (tenant, id) IN (
    SELECT tenant, run_id FROM interrupts WHERE state = 'open' AND expires_at <= now())
ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED"""

_EXPIRE = """
UPDATE interrupts SET state = 'expired', answered_at = now()
WHERE tenant = %(tenant)s AND run_id = %(id)s AND state = 'open' AND expires_at <= now()"""


@dataclass(frozen=True, slots=True)
class StoredInterrupt(RunInterrupt):
    """A question of a run with its key in the run and its answer, if any."""

    key: str = ""
    payload: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class InterruptAnswer:
    """An answer to an interrupt; `audit_id` is the id of the audit row to write for it."""

    id: str
    state: Literal["resolved", "cancelled"]
    payload: JsonObject
    audit_id: str = field(default_factory=new_id)


def insert_interrupts(thread_id: str, branch_id: str, asked: Sequence[StoredInterrupt]) -> Clause:
    """Return the clause that stores interrupts in a flush and counts the clarifications among them."""
    names = ("id", "key", "kind", "path", "reason", "message", "call", "code")
    rows = [
        {name: getattr(item, name) for name in names}
        | {"response_schema": item.responseSchema, "expires_at": item.expiresAt.isoformat()}
        for item in asked
    ]
    values = {
        "asked": Jsonb(storable(rows)),
        "clarifications": sum(item.kind == "clarification" for item in asked),
        "asked_thread": thread_id,
        "asked_branch": branch_id,
    }
    return Clause(_INSERT, values)


class InterruptReader(Repository):
    """Reads interrupts."""

    async def of_run(self, key: RunKey) -> list[StoredInterrupt]:
        """Return all interrupts of a run, oldest first."""
        return await _rows(self._engine, _OF_RUN, {"tenant": key.tenant, "id": key.id})

    async def waiting(
        self,
        tenant: str,
        *,
        run: str | None = None,
        kind: str | None = None,
        after: str | None = None,
        limit: int = BATCH_LIMIT,
    ) -> list[StoredInterrupt]:
        """Return interrupts of a tenant's unfinished runs that can still be answered, oldest first.

        `run`, `kind` and `after` (the id of an interrupt) restrict the result.
        """
        values = {"tenant": tenant, "run": run, "kind": kind, "after": after, "limit": limit}
        return await _rows(self._engine, _WAITING, values)

    async def one(self, tenant: str, interrupt: str) -> StoredInterrupt:
        """Return an interrupt. Raises NotFoundError, also for one of another tenant."""
        found = await _rows(self._engine, _ONE, {"tenant": tenant, "id": interrupt})
        if not found:
            raise NotFoundError("interrupt", interrupt)
        return found[0]


class InterruptRepository(InterruptReader):
    """Queries over interrupts. Each public method is one transaction unless it takes a connection."""

    def __init__(self, engine: AsyncEngine, runs: RunRepository) -> None:
        super().__init__(engine)
        self._runs = runs

    async def answer(self, key: RunKey, answers: Sequence[InterruptAnswer], actor: str, origin: str = "") -> None:
        """Store all answers or none, and queue the run again if it waits. Repeating the same answers changes nothing.

        Raises NotFoundError for an unknown run or interrupt, ConflictError if one has a different answer, has expired
        or its run has ended.
        """
        async with transaction(self._engine) as connection:
            values = {"tenant": key.tenant, "id": key.id}
            over = await (await connection.execute(_LOCK, values)).fetchone()
            if over is None:
                raise NotFoundError("run", key.id)
            new = await self._unanswered(connection, values, answers)
            if new and over[0]:
                raise ConflictError(f"Run {key.id} has ended, so its interrupts can no longer be answered.")
            if new:
                await self._write(connection, {**values, "actor": actor, "origin": origin}, new)

    async def grant_of(self, key: RunKey) -> Grant | None:
        """Return the grant of a run; None allows everything. Raises NotFoundError."""
        found = await fetch_autocommit(self._engine, _GRANT, {"tenant": key.tenant, "id": key.id})
        if not found:
            raise NotFoundError("run", key.id)
        return Grant.from_json(found[0][0])

    async def answer_thread(
        self,
        principal: Principal,
        thread: str,
        text: str,
        idempotency: IdempotencyKey | None = None,
        branch: str | None = None,
    ) -> tuple[RunKey, int] | None:
        """Store a message as the answer to the open clarification of the active run of its branch.

        Returns that run and the number of its last event. Returns None if that run does not wait for exactly one
        clarification that the sender may answer, or if its grant exceeds the sender's. Of two concurrent messages, one
        answers. The idempotency key then belongs to that run. If the result of the commit is unknown, it is looked up
        before a retry.
        """
        place = {"tenant": principal.tenant, "thread": thread, "branch": branch}
        attempt = partial(self._answer_thread, principal, place, text, idempotency, audit_id := new_id())
        try:
            return await attempt()
        except DatabaseUnavailableError as error:
            if isinstance(error.__cause__, PoolTimeoutError):
                raise  # nothing was sent, and the pool's timeout was already waited for

        async def answer_once() -> tuple[RunKey, int] | None:
            """Answer unless the first attempt succeeded; check again afterwards: its commit may complete meanwhile."""
            return (
                await self._find_answer(principal.tenant, audit_id)
                or await attempt()
                or await self._find_answer(principal.tenant, audit_id)
            )

        return await retry_while_unavailable(answer_once, seconds=RETRY_SECONDS)

    async def _find_answer(self, tenant: str, audit_id: str) -> tuple[RunKey, int] | None:
        found = await fetch_autocommit(self._engine, _ANSWER_OF_AUDIT, {"tenant": tenant, "audit_id": audit_id})
        return (RunKey(tenant, found[0][0]), found[0][1]) if found else None

    async def _answer_thread(
        self,
        principal: Principal,
        place: Mapping[str, Any],
        text: str,
        idempotency: IdempotencyKey | None,
        audit_id: str,
    ) -> tuple[RunKey, int] | None:
        values = {**place, "actor": principal.key_id or LOCAL, "origin": "message"}
        values |= {"may_build": Scope.TEAMS in principal.scopes}
        async with transaction(self._engine) as connection:
            active = await (await connection.execute(_ACTIVE, values)).fetchone()
            if active is None or (
                principal.grant is not None and not principal.grant.covers(Grant.from_json(active[2]))
            ):
                return None
            key = RunKey(principal.tenant, active[0])
            # The key is locked before the run, as in acceptance.
            if idempotency:
                kept = await reserve(connection, key.tenant, idempotency, key.id)
                if kept != IdempotencyRecord(key.id, idempotency.request_hash):
                    return None
            if seq := await self._answer_only_question(connection, {**values, "id": key.id}, text, audit_id):
                return key, seq
            await connection.rollback()  # frees the idempotency key
        return None

    async def _answer_only_question(
        self, connection: Connection, values: Mapping[str, Any], text: str, audit_id: str
    ) -> int | None:
        """Answer the only open clarification of an active run; return the number of its last event, else None."""
        active = await (await connection.execute(_LOCK_ACTIVE, values)).fetchone()
        found = await (await connection.execute(_OPEN_OF_RUN, values)).fetchall()
        if active is None or [kind for _, kind, _ in found] != ["clarification"]:
            return None
        if is_of_build(found[0][2]) and not values["may_build"]:
            return None
        await self._write(connection, values, [InterruptAnswer(found[0][0], "resolved", {"answer": text}, audit_id)])
        return active[1]

    async def expire(self) -> int:
        """Expire unanswered interrupts and queue their runs again; return the number of runs."""
        if await execute_autocommit(self._engine, _ANY_LAPSED, {}) == (False,):
            return 0
        async with transaction(self._engine) as connection:
            cursor = await connection.execute(_LAPSED, {"limit": BATCH_LIMIT})
            lapsed = [RunKey(*row) for row in await cursor.fetchall()]
            for key in lapsed:
                values = {"tenant": key.tenant, "id": key.id}
                await connection.execute(_EXPIRE, values)
                await connection.execute(_WAKE, values)
            for tenant in {key.tenant for key in lapsed}:
                await self._runs.admit(connection, tenant)
        return len(lapsed)

    async def wake_if_answered(self, connection: Connection, key: RunKey, interrupts: Sequence[str]) -> None:
        """Queue a just suspended run if one of its interrupts is no longer open; admit runnable runs.

        Part of the transaction that suspends the run.
        """
        await connection.execute(_WAKE_IF_ANSWERED, {"tenant": key.tenant, "id": key.id, "ids": list(interrupts)})
        await self._runs.admit(connection, key.tenant)

    async def _unanswered(
        self, connection: Connection, values: Mapping[str, Any], answers: Sequence[InterruptAnswer]
    ) -> list[InterruptAnswer]:
        """Return the answers that are not stored yet."""
        wanted = {**values, "ids": [item.id for item in answers], "from": NOT_DONE_FROM}
        cursor = await connection.execute(_ANSWERED, wanted)
        known = {row[0]: row[1:] for row in await cursor.fetchall()}
        new: list[InterruptAnswer] = []
        for item in answers:
            if item.id not in known:
                raise NotFoundError("interrupt", item.id)
            state, payload, late, not_done_from = known[item.id]
            if (state, payload) == (item.state, item.payload):
                continue
            if state != "open" or late:
                expired = state in ("open", "expired")
                how = "has expired" if expired else f"was {state} already, with another answer"
                raise ConflictError(
                    f"The interrupt {item.id} {how}.", "`GET /v1/approvals` shows what can be answered."
                )
            if not_done_from and item.payload.get("resolution") == "not_done":
                raise ConflictError(
                    f"The call may still be going on: `not_done` is accepted from {not_done_from} on.",
                    "Answer again then; `done` and `give_up` are accepted now.",
                )
            new.append(item)
        return new

    async def _write(
        self, connection: Connection, values: Mapping[str, Any], answers: Sequence[InterruptAnswer]
    ) -> None:
        await connection.execute(_ANSWER, {**values, "answers": Jsonb([asdict(item) for item in answers])})
        await connection.execute(_WAKE, values)
        await self._runs.admit(connection, values["tenant"])


async def _rows(engine: AsyncEngine, query: str, values: Mapping[str, Any]) -> list[StoredInterrupt]:
    return [StoredInterrupt(*row) for row in await fetch_autocommit(engine, query, values)]


def public_interrupt(item: StoredInterrupt) -> RunInterrupt:
    """Return what callers see of an interrupt."""
    return RunInterrupt(*(getattr(item, name) for name in RunInterrupt.__match_args__))


def is_of_build(path: str) -> bool:
    """Return whether the clarification of a path is asked by a build of a team."""
    return path.endswith(f".{QUESTION}")
