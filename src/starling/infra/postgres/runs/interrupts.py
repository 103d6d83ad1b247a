"""What runs wait for: interrupts, how they are answered, and how their runs are woken."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Literal

from psycopg.types.json import Jsonb
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.errors import ConflictError, DatabaseUnavailableError, NotFoundError
from starling.core.ids import new_id
from starling.core.json import JsonObject, storable
from starling.core.principal import Grant, Principal
from starling.infra.postgres.audit import LOCAL
from starling.infra.postgres.engine import fetch_alone, transaction, translated
from starling.infra.postgres.retry_backoff import retry_while_unavailable
from starling.infra.postgres.runs.acceptance import PATIENCE_SECONDS, Connection, RunKey, RunRepository
from starling.infra.postgres.runs.idempotency import IdempotencyKey, reserve
from starling.infra.postgres.runs.writer import Clause

type InterruptKind = Literal["approval", "clarification", "budget", "in_doubt"]
type InterruptState = Literal["open", "resolved", "cancelled", "expired"]

MOST = 500  # interrupts, and runs, that are dealt with at once

_ASK = """
asked AS (
    INSERT INTO interrupts (tenant, id, run_id, key, kind, path, reason, message, response_schema, call, expires_at)
    SELECT fenced.tenant, item.id, fenced.id, item.key, item.kind, item.path, item.reason, item.message,
        item.response_schema, item.call, item.expires_at
    FROM fenced, jsonb_to_recordset(%(asked)s) AS item (id uuid, key text, kind text, path text, reason text,
        message text, response_schema jsonb, call jsonb, expires_at timestamptz)),
counted AS (
    UPDATE branches SET clarifications = clarifications + %(clarifications)s FROM fenced
    WHERE branches.tenant = fenced.tenant AND branches.thread_id = %(asked_thread)s AND branches.id = %(asked_branch)s
        AND %(clarifications)s > 0)"""

_COLUMNS = """interrupts.id::text, interrupts.run_id::text, key, kind, path, reason, message, response_schema, call,
    interrupts.state, payload, interrupts.created_at, expires_at, answered_at, answered_by"""

_OF_RUN = f"SELECT {_COLUMNS} FROM interrupts WHERE tenant = %(tenant)s AND run_id = %(id)s ORDER BY id"  # noqa: S608

_WAITING = f"""
SELECT {_COLUMNS} FROM interrupts JOIN runs ON runs.tenant = interrupts.tenant AND runs.id = interrupts.run_id
WHERE interrupts.tenant = %(tenant)s AND interrupts.state = 'open' AND runs.ended_at IS NULL AND expires_at > now()
    AND (%(run)s::uuid IS NULL OR runs.id = %(run)s) AND (%(kind)s::text IS NULL OR kind = %(kind)s)
    AND (%(after)s::uuid IS NULL OR interrupts.id > %(after)s)
ORDER BY interrupts.id LIMIT %(limit)s"""  # noqa: S608 - our own text

_ONE = f"SELECT {_COLUMNS} FROM interrupts WHERE tenant = %(tenant)s AND id = %(id)s"  # noqa: S608 - our own text

# Everybody who answers locks the run first: the worker that lets it wait does so under the same lock.
_LOCK = "SELECT ended_at IS NOT NULL FROM runs WHERE tenant = %(tenant)s AND id = %(id)s FOR UPDATE"

_ANSWERED = """
SELECT id::text, state, payload, expires_at <= now() FROM interrupts
WHERE tenant = %(tenant)s AND run_id = %(id)s AND id = ANY(%(ids)s::uuid[])"""

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

# A second statement of its transaction: it sees what was committed before the run's row was locked.
_WAKE_IF_ANSWERED = """
UPDATE runs SET status = 'queued' WHERE tenant = %(tenant)s AND id = %(id)s AND status = 'waiting' AND (
    cancel_requested OR EXISTS (
        SELECT FROM interrupts WHERE tenant = %(tenant)s AND run_id = %(id)s AND id = ANY(%(ids)s::uuid[])
        AND state <> 'open'))"""

_ACTIVE = """
SELECT runs.id::text, runs.seq, runs.principal -> 'grant' FROM runs
JOIN threads ON threads.tenant = runs.tenant AND threads.id = runs.thread_id AND threads.branch = runs.branch_id
WHERE runs.tenant = %(tenant)s AND runs.thread_id = %(thread)s AND runs.status IN ('running', 'waiting')
    AND NOT runs.cancel_requested"""
_LOCK_ACTIVE = f"{_ACTIVE} AND runs.id = %(id)s FOR UPDATE OF runs"

# Which run a deed was about, and the number of the event that had asked for it.
_DONE = """
SELECT events.run_id::text, events.seq FROM audit JOIN events
    ON events.tenant = audit.tenant AND events.run_id = (audit.detail ->> 'run_id')::uuid
    AND events.type = 'clarification' AND 'interrupt ' || (events.data ->> 'id') = audit.target
WHERE audit.tenant = %(tenant)s AND audit.id = %(deed)s"""

_GRANT = "SELECT principal -> 'grant' FROM runs WHERE tenant = %(tenant)s AND id = %(id)s"

_OPEN_OF_RUN = """
SELECT id::text, kind FROM interrupts
WHERE tenant = %(tenant)s AND run_id = %(id)s AND state = 'open' AND expires_at > now()"""

_LAPSED = """
SELECT tenant, id::text FROM runs WHERE (tenant, id) IN (
    SELECT tenant, run_id FROM interrupts WHERE state = 'open' AND expires_at <= now())
ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED"""

_EXPIRE = """
UPDATE interrupts SET state = 'expired', answered_at = now()
WHERE tenant = %(tenant)s AND run_id = %(id)s AND state = 'open' AND expires_at <= now()"""


@dataclass(frozen=True, slots=True)
class StoredInterrupt:
    """Something that a run asks, and what came of it; `call` is the exact tool call that it is about, if any."""

    id: str
    run_id: str
    key: str
    kind: InterruptKind
    path: str
    reason: str
    message: str
    response_schema: JsonObject
    call: JsonObject | None
    state: InterruptState
    payload: JsonObject | None
    created_at: datetime | None
    expires_at: datetime
    answered_at: datetime | None = None
    answered_by: str | None = None


@dataclass(frozen=True, slots=True)
class InterruptAnswer:
    """What somebody says to an interrupt; `deed` is the id of the audit row that tells of it."""

    id: str
    state: Literal["resolved", "cancelled"]
    payload: JsonObject
    deed: str = field(default_factory=new_id)


def asking(thread_id: str, branch_id: str, asked: Sequence[StoredInterrupt]) -> Clause:
    """Return what writes interrupts down, and counts the questions among them, as a part of a flush."""
    rows = [
        {
            "id": item.id,
            "key": item.key,
            "kind": item.kind,
            "path": item.path,
            "reason": item.reason,
            "message": item.message,
            "response_schema": item.response_schema,
            "call": item.call,
            "expires_at": item.expires_at.isoformat(),
        }
        for item in asked
    ]
    values = {
        "asked": Jsonb(storable(rows)),
        "clarifications": sum(item.kind == "clarification" for item in asked),
        "asked_thread": thread_id,
        "asked_branch": branch_id,
    }
    return Clause(_ASK, values)


class InterruptReader:
    """Reads interrupts."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def of_run(self, key: RunKey) -> list[StoredInterrupt]:
        """Return everything that a run has asked, answered or not."""
        return await _rows(self._engine, _OF_RUN, {"tenant": key.tenant, "id": key.id})

    async def waiting(
        self,
        tenant: str,
        *,
        run: str | None = None,
        kind: str | None = None,
        after: str | None = None,
        limit: int = MOST,
    ) -> list[StoredInterrupt]:
        """Return interrupts of a tenant's unfinished runs that can still be answered, oldest first.

        Of a run, of a kind, and those that follow another one, where that is said.
        """
        values = {"tenant": tenant, "run": run, "kind": kind, "after": after, "limit": limit}
        return await _rows(self._engine, _WAITING, values)

    async def one(self, tenant: str, interrupt: str) -> StoredInterrupt:
        """Return an interrupt. Raises NotFoundError, for another tenant's as well."""
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
        """Write down who answered what, all or none, and wake the run if it waits. The same again changes nothing.

        Raises NotFoundError for an unknown run or interrupt, ConflictError where one was answered otherwise, has
        expired or its run is over.
        """
        with translated():
            async with transaction(self._engine) as connection:
                values = {"tenant": key.tenant, "id": key.id}
                over = await (await connection.execute(_LOCK, values)).fetchone()
                if over is None:
                    raise NotFoundError("run", key.id)
                new = await self._new(connection, values, answers)
                if new and over[0]:
                    raise ConflictError(f"Run {key.id} is over: it waits for nothing any more.")
                if new:
                    await self._write(connection, {**values, "actor": actor, "origin": origin}, new)

    async def grant_of(self, key: RunKey) -> Grant | None:
        """Return what a run may reach; None is everything. Raises NotFoundError."""
        with translated():
            found = await fetch_alone(self._engine, _GRANT, {"tenant": key.tenant, "id": key.id})
        if not found:
            raise NotFoundError("run", key.id)
        return Grant.from_json(found[0][0])

    async def answer_thread(
        self, principal: Principal, thread: str, text: str, idempotency: IdempotencyKey | None = None
    ) -> tuple[RunKey, int] | None:
        """Let a message answer the one question that its thread's active run asks.

        Returns that run and the number of its last event so far, or None where no run there waits for exactly a
        clarification, or may reach more than whoever sent the message: of two messages at once, one answers. The
        idempotency key stands for that run then. A commit whose answer was lost is looked for: nothing answers twice.
        """
        deed = new_id()
        try:
            return await self._answer_thread(principal, thread, text, idempotency, deed)
        except DatabaseUnavailableError as error:
            if isinstance(error.__cause__, PoolTimeoutError):
                raise  # nothing was sent, and waiting is what was done
        again = partial(self._answer_thread_once, principal, thread, text, idempotency, deed)
        return await retry_while_unavailable(again, seconds=PATIENCE_SECONDS)

    async def _answer_thread_once(
        self, principal: Principal, thread: str, text: str, idempotency: IdempotencyKey | None, deed: str
    ) -> tuple[RunKey, int] | None:
        """Do it unless it was done; the commit in doubt may come through while we look, and until it has we wait."""
        return (
            await self._done(principal.tenant, deed)
            or await self._answer_thread(principal, thread, text, idempotency, deed)
            or await self._done(principal.tenant, deed)
        )

    async def _done(self, tenant: str, deed: str) -> tuple[RunKey, int] | None:
        with translated():
            found = await fetch_alone(self._engine, _DONE, {"tenant": tenant, "deed": deed})
        return (RunKey(tenant, found[0][0]), found[0][1]) if found else None

    async def _answer_thread(
        self, principal: Principal, thread: str, text: str, idempotency: IdempotencyKey | None, deed: str
    ) -> tuple[RunKey, int] | None:
        values = {"tenant": principal.tenant, "thread": thread, "actor": principal.key_id or LOCAL, "origin": "message"}
        with translated():
            async with transaction(self._engine) as connection:
                active = await (await connection.execute(_ACTIVE, values)).fetchone()
                if active is None or not _may_tell(principal, active[2]):
                    return None
                key = RunKey(principal.tenant, active[0])
                if idempotency and await _is_taken(connection, idempotency, key):  # before the run, as who accepts runs
                    return None
                if seq := await self._answer_only_question(connection, {**values, "id": key.id}, text, deed):
                    return key, seq
                await connection.rollback()  # the idempotency key is free again
        return None

    async def _answer_only_question(
        self, connection: Connection, values: Mapping[str, Any], text: str, deed: str
    ) -> int | None:
        """Lock an active run and answer what it asks; None where that isn't one clarification, else its last event."""
        active = await (await connection.execute(_LOCK_ACTIVE, values)).fetchone()
        found = await (await connection.execute(_OPEN_OF_RUN, values)).fetchall()
        if active is None or [kind for _, kind in found] != ["clarification"]:
            return None
        await self._write(connection, values, [InterruptAnswer(found[0][0], "resolved", {"answer": text}, deed)])
        return active[1]

    async def expire(self) -> int:
        """Close what nobody answered in time and wake the runs that waited for it; return how many runs that were."""
        with translated():
            async with transaction(self._engine) as connection:
                cursor = await connection.execute(_LAPSED, {"limit": MOST})
                lapsed = [RunKey(*row) for row in await cursor.fetchall()]
                for key in lapsed:
                    values = {"tenant": key.tenant, "id": key.id}
                    await connection.execute(_EXPIRE, values)
                    await connection.execute(_WAKE, values)
                for tenant in {key.tenant for key in lapsed}:
                    await self._runs.admit(connection, tenant)
        return len(lapsed)

    async def wake_if_answered(self, connection: Connection, key: RunKey, interrupts: Sequence[str]) -> None:
        """Queue a run that was just let wait where one of its interrupts isn't open any more; admit what may go on.

        Part of the transaction that lets the run wait.
        """
        await connection.execute(_WAKE_IF_ANSWERED, {"tenant": key.tenant, "id": key.id, "ids": list(interrupts)})
        await self._runs.admit(connection, key.tenant)

    async def _new(
        self, connection: Connection, values: Mapping[str, Any], answers: Sequence[InterruptAnswer]
    ) -> list[InterruptAnswer]:
        """Return the answers that aren't there yet."""
        cursor = await connection.execute(_ANSWERED, {**values, "ids": [item.id for item in answers]})
        known = {row[0]: row[1:] for row in await cursor.fetchall()}
        new: list[InterruptAnswer] = []
        for item in answers:
            if item.id not in known:
                raise NotFoundError("interrupt", item.id)
            state, payload, late = known[item.id]
            if (state, payload) == (item.state, item.payload):
                continue
            if state != "open" or late:
                raise _conflict(item.id, "expired" if state == "open" else state)
            new.append(item)
        return new

    async def _write(
        self, connection: Connection, values: Mapping[str, Any], answers: Sequence[InterruptAnswer]
    ) -> None:
        rows = [
            {"id": item.id, "state": item.state, "payload": item.payload, "audit_id": item.deed} for item in answers
        ]
        await connection.execute(_ANSWER, {**values, "answers": Jsonb(rows)})
        await connection.execute(_WAKE, values)
        await self._runs.admit(connection, values["tenant"])


async def _rows(engine: AsyncEngine, query: str, values: Mapping[str, Any]) -> list[StoredInterrupt]:
    with translated():
        return [StoredInterrupt(*row) for row in await fetch_alone(engine, query, values)]


def _may_tell(principal: Principal, grant: Mapping[str, Sequence[str]] | None) -> bool:
    """Whether a caller reaches all that a run may reach."""
    return principal.grant is None or principal.grant.covers(Grant.from_json(grant))


async def _is_taken(connection: Connection, idempotency: IdempotencyKey, key: RunKey) -> bool:
    """Have an idempotency key stand for a run; whether it stands for another one, or for another request."""
    return await reserve(connection, key.tenant, idempotency, key.id) != idempotency.held_by(key.id)


def _conflict(interrupt: str, state: str) -> ConflictError:
    how = "has expired" if state == "expired" else f"was {state} already, with another answer"
    return ConflictError(f"The interrupt {interrupt} {how}.", "`GET /v1/approvals` shows what can be answered.")
