"""Acceptance and admission of runs."""

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, Final, Protocol

from psycopg import AsyncConnection
from psycopg.errors import UniqueViolation
from psycopg.types.json import Jsonb
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.errors import (
    BacklogFullError,
    DatabaseUnavailableError,
    IdempotencyKeyReusedError,
    NotFoundError,
    StarlingError,
)
from starling.core.events.run_events import RunStarted
from starling.core.runs import DirectCall, Run, RunConfig, RunStatus
from starling.core.teams.building import BuildRequest
from starling.infra.postgres.audit import INSERT_RUN_AUDIT_EVENT, run_event_values
from starling.infra.postgres.availability import retry_while_unavailable
from starling.infra.postgres.engine import execute_autocommit, pipelined_transaction
from starling.infra.postgres.runs.builds import check_name
from starling.infra.postgres.runs.busy_thread_policy import Policy, apply_policy, check_continues, lock_for, take_turn
from starling.infra.postgres.runs.fork_copies import NewFork, copy_inherited, take_branch
from starling.infra.postgres.tool_definitions import LOCK_REGISTRY

# An existing key is only read, but its row is locked: the second of two requests waits for the first.
_RESERVE: Final = """
INSERT INTO idempotency_keys (tenant, key, request_hash, run_id)
VALUES (%(tenant)s, %(key)s, %(request_hash)s, %(run_id)s)
ON CONFLICT (tenant, key) DO UPDATE SET key = excluded.key
RETURNING run_id::text, request_hash"""
_REPLACE: Final = """
INSERT INTO idempotency_keys (tenant, key, request_hash, run_id)
VALUES (%(tenant)s, %(key)s, %(request_hash)s, %(run_id)s)
ON CONFLICT (tenant, key) DO UPDATE
    SET request_hash = excluded.request_hash, run_id = excluded.run_id, created_at = now()"""
_BEGUN: Final = """
SELECT run_id::text, request_hash FROM idempotency_keys WHERE tenant = %(tenant)s AND key = %(key)s"""


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The key that the caller sent, and the digest of the request.

    With `replaces` the key belongs to the new run from now on, whichever it belonged to before.
    """

    text: str
    request_hash: str
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class IdempotencyRecord:
    """The run that a key belongs to, and the digest of the request that created it."""

    run_id: str
    request_hash: str


async def reserve(connection: AsyncConnection[Any], tenant: str, key: IdempotencyKey, run_id: str) -> IdempotencyRecord:
    """Store a key for a run in the connection's transaction, unless it is taken; return the stored record."""
    values = {"tenant": tenant, "key": key.text, "request_hash": key.request_hash, "run_id": run_id}
    if key.replaces:
        await connection.execute(_REPLACE.encode(), values)  # whose result is known: in a pipeline nothing waits for it
        return IdempotencyRecord(run_id, key.request_hash)
    row = await (await connection.execute(_RESERVE.encode(), values)).fetchone()
    assert row is not None
    return IdempotencyRecord(*row)


type Connection = AsyncConnection[Any]
type Defer = Callable[[Connection, Sequence["RunKey"]], Awaitable[None]]
"""Queues jobs for runnable runs in the connection's transaction."""


@dataclass(frozen=True, slots=True)
class RunKey:
    """The identity of a run: ids are globally unique, but every query names the tenant."""

    tenant: str
    id: str


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to accept."""

    key: RunKey
    thread_id: str
    input: str
    config: RunConfig
    principal: Mapping[str, Any]
    correlation_id: str
    trace_id: str
    idempotency: IdempotencyKey | None = None
    policy: Policy = "enqueue"
    may_answer: bool = True  # whether the message may answer the clarification that the active run waits for
    build: BuildRequest | None = None
    call: DirectCall | None = None
    graph_version: int = 0  # workers with an earlier one leave it alone
    branch: str | None = None  # None: the current one of its thread
    at: int | None = None  # the position that has to be the tip of its branch, where no other run may go on
    fork: NewFork | None = None
    parent_span: str | None = None  # of the caller's trace, whose id is then `trace_id`


class OpenClarificationError(StarlingError):
    """A run of the thread waits for a clarification, which the message should answer. No run was accepted."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The first event and the status of the accepted run, or of the earlier run with the same idempotency key."""

    started: RunStarted
    status: RunStatus = RunStatus.QUEUED


class LocalWorker(Protocol):
    """The worker of this process, which can execute an accepted run without the queue."""

    def reserve(self, tenant: str) -> bool:
        """Reserve a slot for one run of the tenant; return False if none is free for it."""
        ...

    def start(self, key: RunKey) -> None:
        """Claim and execute a run in a reserved slot."""
        ...

    def release(self, tenant: str) -> None:
        """Free a reserved slot."""
        ...


_BACKLOG_RETRY_SECONDS = 5.0  # after which a caller may ask again
RETRY_SECONDS = 5.0  # while Postgres is unavailable, before a request fails

# Creates the thread with its first run, and locks the branch until the transaction ends: acceptances and ends of runs
# on one branch are serialised. A branch that is named has to be there; `main` comes with the thread.
_TAKE_POSITION: Final = """
WITH opened AS (INSERT INTO threads (tenant, id) VALUES (%(tenant)s, %(thread_id)s) ON CONFLICT DO NOTHING)
INSERT INTO branches (tenant, thread_id, id, arrivals)
SELECT %(tenant)s, %(thread_id)s,
    coalesce(%(branch)s, (SELECT branch FROM threads WHERE tenant = %(tenant)s AND id = %(thread_id)s), 'main'), 1
WHERE coalesce(%(branch)s, 'main') = 'main' OR EXISTS (SELECT FROM branches WHERE tenant = %(tenant)s AND
        thread_id = %(thread_id)s AND id = %(branch)s AND NOT hidden)
ON CONFLICT (tenant, thread_id, id) DO UPDATE SET arrivals = branches.arrivals + 1
RETURNING id, arrivals, (SELECT number FROM epochs WHERE tenant = '*' AND active) AS epoch"""

# The run row, the first event of its stream, and the audit event in the outbox; nothing, and no row, where as many runs
# of the tenant are queued as may be. That limit is soft: acceptances at the same time don't see each other's rows.
_INSERT_RUN = (
    """
WITH written AS (
INSERT INTO runs (tenant, id, thread_id, branch_id, arrival, epoch, graph_version, input, config, principal,
                  correlation_id, trace_id, seq, build, forked_from, direct_call, parent_span, admitted_at)
SELECT %(tenant)s, %(id)s, %(thread_id)s, %(branch_id)s, %(arrival)s, %(epoch)s, %(graph_version)s, %(input)s,
       %(config)s, %(principal)s, %(correlation_id)s, %(trace_id)s, 1, %(build)s, %(forked_from)s, %(call)s,
       %(parent_span)s,
       CASE WHEN NOT EXISTS (SELECT FROM runs WHERE tenant = %(tenant)s AND thread_id = %(thread_id)s
                             AND branch_id = %(branch_id)s AND ended_at IS NULL)
             AND (SELECT count(*) FROM runs WHERE tenant = %(tenant)s AND ended_at IS NULL
                  AND admitted_at IS NOT NULL) < %(cap)s
       THEN now() END
WHERE (SELECT count(*) FROM runs WHERE tenant = %(tenant)s AND ended_at IS NULL AND status = 'queued') < %(backlog)s
RETURNING *),
streamed AS (
    INSERT INTO events (tenant, run_id, seq, type, data) SELECT tenant, id, 1, 'run_started', %(event)s FROM written),
audited AS ("""  # noqa: S608 - our own text
    + INSERT_RUN_AUDIT_EVENT
    + """)
SELECT admitted_at IS NOT NULL FROM written"""
)

_ACCEPTED = """
SELECT thread_id, trace_id, epoch, correlation_id, status FROM runs WHERE tenant = %(tenant)s AND id = %(id)s"""

_OPEN_CLARIFICATION = """
SELECT FROM runs JOIN interrupts ON interrupts.tenant = runs.tenant AND interrupts.run_id = runs.id
WHERE runs.tenant = %(tenant)s AND runs.thread_id = %(thread_id)s AND runs.branch_id = %(branch_id)s
    AND runs.status IN ('running', 'waiting') AND NOT runs.cancel_requested
    AND interrupts.kind = 'clarification' AND interrupts.state = 'open' LIMIT 1"""

# The head of a branch is its oldest unfinished run. The cap is soft: two runs that end at the same time may both miss
# the next run, which the sweep then admits. With `ended_at IS NULL` the index of unfinished runs is used, so the cost
# does not grow with the number of ended runs.
_ADMIT = """
UPDATE runs SET admitted_at = now() WHERE (tenant, id) IN (
    SELECT tenant, id FROM runs AS head
    WHERE tenant = %(tenant)s AND ended_at IS NULL AND status = 'queued' AND admitted_at IS NULL AND id IN (
        SELECT DISTINCT ON (thread_id, branch_id) id FROM runs WHERE tenant = %(tenant)s AND ended_at IS NULL
        ORDER BY thread_id, branch_id, arrival)
    ORDER BY created_at
    LIMIT greatest(0, %(cap)s - (SELECT count(*) FROM runs WHERE tenant = %(tenant)s AND ended_at IS NULL
                                 AND admitted_at IS NOT NULL))
    FOR UPDATE SKIP LOCKED)
RETURNING tenant, id::text, EXISTS (
    SELECT FROM procrastinate_jobs WHERE queueing_lock = runs.id::text AND status = 'todo')"""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claimed run, with the counters that its writer continues from."""

    run: Run
    seq: int
    flushes: int


class RunRepository:
    """Queries over the run row. Each public method is one transaction unless it takes a connection."""

    def __init__(
        self,
        engine: AsyncEngine,
        defer: Defer,
        *,
        cap: int,
        backlog: int = sys.maxsize,
        local: LocalWorker | None = None,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._engine = engine
        self._defer = defer
        self._local = local
        self._cap = cap
        self._backlog = backlog
        self._retry_seconds = retry_seconds

    async def accept(self, new: NewRun) -> Acceptance:
        """Write the run row, its input and its first event at once.

        A runnable run is queued in the same transaction, unless the worker of this process has a free slot for it.
        If the result of the commit is unknown, the run is looked up by its id before the acceptance is repeated.
        Raises ConflictError, also for a build whose team's name is taken; IdempotencyKeyReusedError,
        OpenClarificationError; BacklogFullError; DatabaseUnavailableError where Postgres stayed away.
        """
        begun = monotonic()
        try:
            return await self._accept(new)
        except DatabaseUnavailableError as error:
            waited = isinstance(error.__cause__, PoolTimeoutError) or monotonic() - begun >= self._retry_seconds
            if waited:  # for a connection, which sent nothing, or for an answer
                raise
        return await retry_while_unavailable(partial(self._find_or_accept, new), seconds=self._retry_seconds)

    async def _accept(self, new: NewRun) -> Acceptance:
        local = self._local if self._local is not None and self._local.reserve(new.key.tenant) else None
        try:
            written, admitted = await self._reserve_and_write(new, queued=local is None)
        except BaseException:
            if local is not None:
                local.release(new.key.tenant)
            raise
        if local is not None:
            local.start(new.key) if admitted else local.release(new.key.tenant)
        return Acceptance(written) if isinstance(written, RunStarted) else await self._repeated(new, written)

    async def _reserve_and_write(self, new: NewRun, *, queued: bool) -> tuple[RunStarted | IdempotencyRecord, bool]:
        """Return the run's first event and whether it was admitted, or the existing record of its idempotency key."""
        async with pipelined_transaction(self._engine) as connection:
            if new.build and new.build.name:
                await connection.execute(LOCK_REGISTRY)
            if new.idempotency:
                record = await reserve(connection, new.key.tenant, new.idempotency, new.key.id)
                if record.run_id != new.key.id:
                    return record, False
            if new.build:
                await check_name(connection, new.key.tenant, new.key.id, new.build)
            return await self._write(connection, new, queued=queued)

    async def _write(self, connection: Connection, new: NewRun, *, queued: bool) -> tuple[RunStarted, bool]:
        key = {"tenant": new.key.tenant, "id": new.key.id, "thread_id": new.thread_id, "branch": new.branch}
        await take_turn(connection, key)
        await lock_for(connection, new.policy, key)
        if new.fork:
            position = await take_branch(connection, key, new.fork)
        else:
            place = await connection.execute(_TAKE_POSITION, key)
            position = await place.fetchone()
        if position is None:
            raise NotFoundError("branch", str(new.branch), "`starling conversation show THREAD` shows its branches.")
        branch_id, arrival, epoch = position
        if new.at is not None:
            await check_continues(connection, key | {"branch_id": branch_id, "at": new.at})
        await apply_policy(connection, new.policy, key | {"branch_id": branch_id, "arrival": arrival})
        first = RunStarted(
            run_id=new.key.id,
            thread_id=new.thread_id,
            trace_id=new.trace_id,
            epoch=epoch or 0,
            correlation_id=new.correlation_id,
        )
        caps = {"cap": self._cap, "backlog": self._backlog}
        row = _row(new, first) | {"branch_id": branch_id, "arrival": arrival} | caps | run_event_values()
        written = await (await connection.execute(_INSERT_RUN, key | row)).fetchone()
        admitted = written is not None and written[0]
        if new.fork:
            await copy_inherited(connection, key, new.fork)
        if admitted and queued:
            await self._defer(connection, [new.key])
        elif not admitted and new.may_answer:
            await _reject_if_clarification_open(connection, key | {"branch_id": branch_id})
        if written is None:
            raise BacklogFullError(self._backlog, _BACKLOG_RETRY_SECONDS)
        return first, admitted

    async def _repeated(self, new: NewRun, record: IdempotencyRecord) -> Acceptance:
        """Return the run of an earlier request with the same idempotency key."""
        if new.idempotency and record.request_hash != new.idempotency.request_hash:
            raise IdempotencyKeyReusedError(new.idempotency.text, record.run_id)
        if earlier := await self.accepted(RunKey(new.key.tenant, record.run_id)):
            return earlier
        raise NotFoundError("run", record.run_id, "The idempotency key belongs to it; use another key.")

    async def _find_or_accept(self, new: NewRun) -> Acceptance:
        if found := await self._found(new.key):
            return found
        try:
            return await self._accept(new)
        except UniqueViolation:  # the commit whose result was unknown succeeded meanwhile
            if found := await self._found(new.key):
                return found
            raise

    async def _found(self, key: RunKey) -> Acceptance | None:
        """Return a run whose commit result was unknown, or None.

        It may have no job, so it is also started in the local worker: only one claim succeeds.
        """
        found = await self.accepted(key)
        if found is not None and found.status is RunStatus.QUEUED and self._local and self._local.reserve(key.tenant):
            self._local.start(key)
        return found

    async def begun(self, tenant: str, idempotency_key: str) -> IdempotencyRecord | None:
        """Return what an earlier request with this key began, or None."""
        row = await execute_autocommit(self._engine, _BEGUN, {"tenant": tenant, "key": idempotency_key})
        return IdempotencyRecord(*row) if row else None

    async def accepted(self, key: RunKey) -> Acceptance | None:
        """Return an accepted run, or None."""
        row = await execute_autocommit(self._engine, _ACCEPTED, {"tenant": key.tenant, "id": key.id})
        if row is None:
            return None
        thread_id, trace_id, epoch, correlation_id, status = row
        started = RunStarted(
            run_id=key.id, thread_id=thread_id, trace_id=trace_id, epoch=epoch, correlation_id=correlation_id
        )
        return Acceptance(started, RunStatus(status))

    async def admit(self, connection: Connection, tenant: str) -> None:
        """Queue the runs of a tenant that became runnable, in the transaction that ended or suspended a run."""
        cursor = await connection.execute(_ADMIT, {"tenant": tenant, "cap": self._cap})
        if admitted := [RunKey(tenant, run) for tenant, run, queued in await cursor.fetchall() if not queued]:
            await self._defer(connection, admitted)


async def _reject_if_clarification_open(connection: Connection, place: Mapping[str, Any]) -> None:
    found = await (await connection.execute(_OPEN_CLARIFICATION, place)).fetchone()
    if found is not None:
        raise OpenClarificationError(f"Thread {place['thread_id']!r} waits for an answer.")


def _row(new: NewRun, first: RunStarted) -> dict[str, Any]:
    return {
        "epoch": first.epoch,
        "input": new.input,
        "config": Jsonb(new.config.model_dump(mode="json", exclude_none=True)),
        "principal": Jsonb(new.principal),
        "correlation_id": new.correlation_id,
        "trace_id": new.trace_id,
        "parent_span": new.parent_span,
        "event": Jsonb(first.model_dump(mode="json")),
        "build": Jsonb(new.build.model_dump(mode="json")) if new.build else None,
        "forked_from": Jsonb(new.fork.origin.model_dump(mode="json", exclude_defaults=True)) if new.fork else None,
        "call": Jsonb(new.call.model_dump(mode="json")) if new.call else None,
        "graph_version": new.fork.graph_version if new.fork else new.graph_version,
    }
