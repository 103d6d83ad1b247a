"""Leases: claiming runs, renewing the claims, taking over what was lost, and how many runs wait."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.forks import ForkOrigin
from starling.core.principal import Grant, Scope
from starling.core.runs import DirectCall, Run, RunConfig, RunStatus
from starling.core.teams.building import BuildRequest
from starling.infra.postgres.connections import BoundedThreadConnection
from starling.infra.postgres.engine import (
    ConnectionLimits,
    Engine,
    address_of,
    arguments_of,
    execute_autocommit,
    reading,
    transaction,
    translated,
)
from starling.infra.postgres.runs.acceptance import Claim, Connection, Defer, RunKey
from starling.infra.postgres.tables.run_records import runs

type Admit = Callable[[Connection, str], Awaitable[None]]
"""Queues the runs of a tenant that became runnable, in the transaction of the connection it is given."""

# The columns of a claim, in the order that `claim_of` reads.
CLAIMED: Final = """tenant, id::text, thread_id, branch_id, epoch, input, config, correlation_id,
    trace_id, fence, crashes, seq, flushes, coalesce(extract(epoch FROM deadline - now()), 0)::float8,
    now(), principal -> 'grant', coalesce(principal ->> 'key_id', ''), cancel_requested, principal -> 'scopes',
    coalesce(isolation IN ('due', 'alone'), false), build, forked_from, direct_call, parent_span"""
_NAMES = (
    *("tenant", "id", "thread_id", "branch_id", "epoch", "input", "config", "correlation_id"),
    *("trace_id", "fence", "crashes", "seq", "flushes", "remaining_seconds", "claimed_at", "grant", "caller"),
    *("cancelled", "scopes", "suspected", "build", "forked_from", "call", "parent_span"),
)

# `graph_version` is the version of the latest worker that executed the run, 0 before the first: it wrote the
# checkpoint, and an earlier version may be unable to read it. A fork has the version that knows forks from the start.
#
# The first time that its process ends a run is 'lost' and goes on beside others; the second time it is suspected and
# executed alone from then on. Only what ends a process of its own counts as a crash of the run: in a shared process any
# of the runs may have been the cause.
_CLAIM = f"""
UPDATE runs SET status = 'running', fence = fence + 1, worker = %(worker)s,
    lease_until = now() + make_interval(secs => %(lease)s), lease_seconds = %(lease)s,
    crashes = crashes + (status = 'running' AND worker IS DISTINCT FROM %(reclaim_own)s
                         AND isolation IS NOT DISTINCT FROM 'alone')::int,
    isolation = CASE WHEN isolation IN ('due', 'alone') THEN 'due'
                WHEN status = 'running' AND worker IS DISTINCT FROM %(reclaim_own)s
                THEN CASE isolation WHEN 'lost' THEN 'due' ELSE 'lost' END
                ELSE isolation END,
    started_at = coalesce(started_at, now()), graph_version = greatest(graph_version, %(graph_version)s),
    deadline = now() + make_interval(secs => least(%(seconds)s, (config -> 'limits' ->> 'run_seconds')::float8))
WHERE tenant = %(tenant)s AND id = %(id)s AND graph_version <= %(readable)s AND (
    (status = 'queued' AND admitted_at IS NOT NULL)
    OR (status = 'running' AND (lease_until IS NULL OR lease_until < now() OR worker = %(reclaim_own)s)))
RETURNING {CLAIMED},
    (SELECT clarifications FROM branches
     WHERE branches.tenant = runs.tenant AND branches.thread_id = runs.thread_id AND branches.id = runs.branch_id),
    (SELECT tip > 0 FROM branches
     WHERE branches.tenant = runs.tenant AND branches.thread_id = runs.thread_id AND branches.id = runs.branch_id),
    (SELECT former.worker FROM runs AS former  -- as it was before this statement
     WHERE former.tenant = runs.tenant AND former.id = runs.id AND former.status = 'running'
        AND former.worker <> %(reclaim_own)s)"""  # noqa: S608 - our own text

_OF_LATER_VERSION = """
SELECT graph_version FROM runs
WHERE tenant = %(tenant)s AND id = %(id)s AND ended_at IS NULL AND graph_version > %(readable)s"""

_BEGIN_ALONE = """
UPDATE runs SET isolation = 'alone' WHERE tenant = %(tenant)s AND id = %(id)s AND fence = %(fence)s RETURNING true"""

_RELEASE = """
UPDATE runs SET status = 'queued', lease_until = NULL, worker = NULL, crashes = crashes + %(crashes)s,
    isolation = CASE isolation WHEN 'alone' THEN 'due' ELSE isolation END
WHERE tenant = %(tenant)s AND id = %(id)s AND fence = %(fence)s AND status = 'running'
RETURNING tenant, id::text"""

_FETCHED = """
SELECT tenant, id::text FROM runs
WHERE tenant = %(tenant)s AND id = %(id)s AND status IN ('queued', 'running') FOR UPDATE"""

_STRANDED = """
SELECT tenant, id::text FROM runs WHERE ended_at IS NULL AND (
    (status = 'running' AND (lease_until IS NULL OR lease_until < now()))
    OR (status = 'queued' AND (admitted_at < now() - make_interval(secs => %(grace)s)
                               OR admitted_at > now() + make_interval(secs => %(grace)s))))
AND NOT EXISTS (SELECT FROM procrastinate_jobs WHERE queueing_lock = runs.id::text AND status = 'todo')"""
_LOCK_STRANDED = f"{_STRANDED} FOR UPDATE OF runs SKIP LOCKED"

# A lease that ends later than one that begins now was given before the database's clock was set back. It is shortened
# to one that begins now: its worker renews it within that time, unless the worker has ended. Workers may have different
# settings, so each row has the length of its lease; those that a former version gave have none.
_TOO_LONG = """
FROM runs WHERE ended_at IS NULL AND status = 'running'
    AND lease_until > now() + make_interval(secs => 2 * coalesce(lease_seconds, %(lease)s))"""
_SHORTEN = f"""
UPDATE runs SET lease_until = now() + make_interval(secs => coalesce(lease_seconds, %(lease)s))
WHERE (tenant, id) IN (SELECT tenant, id {_TOO_LONG} FOR NO KEY UPDATE SKIP LOCKED)"""  # noqa: S608 - our own text

# Checked again once the rows are locked: each enqueuing transaction locks the run row, so a run has at most one job.
_WITHOUT_JOB = """
SELECT run.tenant, run.id FROM unnest(%(tenants)s::text[], %(ids)s::text[]) AS run (tenant, id)
WHERE NOT EXISTS (SELECT FROM procrastinate_jobs WHERE queueing_lock = run.id AND status = 'todo')"""

# Jobs fetched by a worker that died; the queue has deleted that worker's row.
_LEFT_BEHIND = """
FROM procrastinate_jobs WHERE status = 'doing' AND worker_id IS NULL AND NOT EXISTS (
    SELECT FROM runs WHERE tenant = args ->> 'tenant' AND id = (args ->> 'run_id')::uuid AND lease_until > now())"""

_WAITING_TENANTS = """
SELECT DISTINCT tenant FROM runs WHERE ended_at IS NULL AND status = 'queued' AND admitted_at IS NULL"""

# One round trip that locks nothing: an idle platform sweeps every few seconds.
_NEEDS_SWEEP = f"""
SELECT EXISTS ({_STRANDED}) OR EXISTS (SELECT {_LEFT_BEHIND}) OR EXISTS ({_WAITING_TENANTS})
    OR EXISTS (SELECT {_TOO_LONG})"""


class Leases:
    """Claims, releases and sweeps runs. Each public method is one transaction.

    Runs that a worker of a later `graph_version` has executed, and those of a kind that is later than
    `newest_version`, are left to such workers: the sweep queues them again.
    """

    def __init__(
        self, engine: AsyncEngine, defer: Defer, admit: Admit, *, graph_version: int, newest_version: int = 0
    ) -> None:
        self._engine = engine
        self._defer = defer
        self._admit = admit
        self._graph_version = graph_version
        self._readable = max(graph_version, newest_version)

    async def claim(
        self, key: RunKey, *, worker: str, lease_seconds: float, run_seconds: float, reclaim_own: bool = False
    ) -> Claim | None:
        """Claim a runnable run, or one whose lease has expired, under the next fence, or return None.

        With `reclaim_own`, a run that this worker holds in the database is claimed again and not counted as a crash:
        the worker had released it, or did not receive the answer to its earlier claim.
        """
        values = {
            "tenant": key.tenant,
            "id": key.id,
            "worker": worker,
            "lease": lease_seconds,
            "seconds": run_seconds,
            "reclaim_own": worker if reclaim_own else "",
            "graph_version": self._graph_version,
            "readable": self._readable,
        }
        row = await execute_autocommit(self._engine, _CLAIM, values)
        if row is None:
            return None
        return claim_of(row[:-3], clarifications=row[-3], has_history=row[-2], lost_worker=row[-1] or "")

    async def later_version(self, key: RunKey) -> int | None:
        """Return the graph's version of an unfinished run if it is later than ours, so that only others claim it."""
        values = {"tenant": key.tenant, "id": key.id, "readable": self._readable}
        row = await execute_autocommit(self._engine, _OF_LATER_VERSION, values)
        return None if row is None else row[0]

    async def begin_alone(self, run: Run) -> bool:
        """Record that a suspected run is alone in a process from now on; return whether it is held under this fence."""
        values = {"tenant": run.tenant, "id": run.id, "fence": run.fence}
        return await execute_autocommit(self._engine, _BEGIN_ALONE, values) is not None

    async def release(self, run: Run, *, crashed: bool = False) -> bool:
        """Put an unfinished run back into the queue; it counts as a crash only if the run `crashed` its process.

        Does nothing if the run is no longer held under this fence; returns whether it was.
        """
        values = {"tenant": run.tenant, "id": run.id, "fence": run.fence, "crashes": int(crashed)}
        async with transaction(self._engine) as connection:
            released = await (await connection.execute(_RELEASE, values)).fetchall()
            await self._queue(connection, released)
        return bool(released)

    async def requeue(self, key: RunKey) -> None:
        """Queue a run again whose job was fetched but which this worker does not claim."""
        async with transaction(self._engine) as connection:
            fetched = await connection.execute(_FETCHED, {"tenant": key.tenant, "id": key.id})
            await self._queue(connection, await fetched.fetchall())

    async def sweep(self, *, grace_seconds: float, lease_seconds: float) -> int:
        """Queue runs with an expired or missing lease or a lost job again; admit runs that were missed.

        A queued run without a job counts as lost after `grace_seconds`. A lease that goes on for more than twice its
        length is shortened to that; `lease_seconds` is the length of leases that have none. Returns the number of runs
        queued again.
        """
        times = {"grace": grace_seconds, "lease": lease_seconds}
        if await execute_autocommit(self._engine, _NEEDS_SWEEP, times) == (False,):
            return 0
        async with transaction(self._engine) as connection:
            await connection.execute(_SHORTEN, times)
            stranded = await connection.execute(_LOCK_STRANDED, times)
            found = await self._queue(connection, await stranded.fetchall())
            await connection.execute(f"DELETE {_LEFT_BEHIND}")
            waiting = await connection.execute(_WAITING_TENANTS)
            for (tenant,) in await waiting.fetchall():
                await self._admit(connection, tenant)
        return found

    async def _queue(self, connection: Connection, runs: Sequence[tuple[str, str]]) -> int:
        """Queue those of these locked runs that have no job; return their number."""
        if not runs:
            return 0
        values = {"tenants": [tenant for tenant, _ in runs], "ids": [run_id for _, run_id in runs]}
        cursor = await connection.execute(_WITHOUT_JOB, values)
        keys = [RunKey(*row) for row in await cursor.fetchall()]
        await self._defer(connection, keys)
        return len(keys)


def claim_of(row: tuple[Any, ...], **known: Any) -> Claim:
    """Convert a row of `CLAIMED` to a claim, with `known` fields. What later versions add to requests is left out."""
    columns: dict[str, Any] = dict(zip(_NAMES, row, strict=True))
    columns["config"] = RunConfig.model_validate(columns["config"], extra="ignore")
    columns["grant"] = Grant.from_json(columns["grant"])
    columns["scopes"] = frozenset(map(Scope, columns["scopes"] or ()))
    build = columns["build"]
    columns["build"] = BuildRequest.model_validate(build, extra="ignore") if build else None
    origin = columns["forked_from"]
    columns["forked_from"] = ForkOrigin.model_validate(origin) if origin else None
    columns["call"] = DirectCall.model_validate(columns["call"]) if columns["call"] else None
    seq, flushes = columns.pop("seq"), columns.pop("flushes")
    return Claim(Run(**columns, **known), seq, flushes)


# A locked row is being written to; it is skipped until the next renewal, so that it does not delay the others.
_RENEW = """
WITH held AS (
    SELECT * FROM unnest(%(tenants)s::text[], %(ids)s::uuid[], %(fences)s::bigint[]) AS held (tenant, id, fence)),
free AS (
    SELECT runs.tenant, runs.id FROM runs JOIN held USING (tenant, id, fence) WHERE status = 'running'
    FOR NO KEY UPDATE OF runs SKIP LOCKED),
renewed AS (
    UPDATE runs SET lease_until = now() + make_interval(secs => %(lease)s) FROM free
    WHERE runs.tenant = free.tenant AND runs.id = free.id
    RETURNING runs.id)
SELECT runs.id::text, fence, status = 'running' AND renewed.id IS NULL, cancel_requested
FROM runs JOIN held USING (tenant, id, fence) LEFT JOIN renewed ON renewed.id = runs.id"""


type LeaseKey = tuple[str, int]
"""The id of a run and the fence under which it was claimed."""


@dataclass(frozen=True, slots=True)
class RenewalResult:
    """The result of a renewal: leases still held, those of them skipped as locked, and those of runs to cancel."""

    held: frozenset[LeaseKey]
    locked: frozenset[LeaseKey]
    cancelled: frozenset[LeaseKey]


class LeaseRenewer:
    """Renews leases. Connects on first use and after each failure; no wait lasts longer than a lease."""

    def __init__(self, url: str, *, lease_seconds: float) -> None:
        self._url = url
        self._lease_seconds = lease_seconds
        statement_seconds = max(1.0, lease_seconds / 6)
        self._limits = ConnectionLimits(
            connect_seconds=2, statement_seconds=statement_seconds, network_seconds=statement_seconds / 2
        )
        self._connection: BoundedThreadConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def renew(self, runs: Sequence[Run]) -> RenewalResult:
        """Renew the leases of these runs by the database's clock. Raises DatabaseUnavailableError."""
        values = {
            "tenants": [run.tenant for run in runs],
            "ids": [run.id for run in runs],
            "fences": [run.fence for run in runs],
            "lease": self._lease_seconds,
        }
        try:
            with translated():
                if self._connection is None:
                    arguments = arguments_of(self._url, self._limits)
                    address = address_of(self._url)
                    self._connection = BoundedThreadConnection.connect(address, autocommit=True, **arguments)
                    self._connection.answer_seconds = self._limits.answer_seconds
                rows = self._connection.execute(_RENEW, values).fetchall()
        except BaseException:
            self._close()
            raise
        return RenewalResult(
            held=frozenset((run_id, fence) for run_id, fence, _, _ in rows),
            locked=frozenset((run_id, fence) for run_id, fence, locked, _ in rows if locked),
            cancelled=frozenset((run_id, fence) for run_id, fence, _, cancelled in rows if cancelled),
        )

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


_OPEN_INTERRUPTS: Final = text("""
SELECT CASE WHEN now() - created_at < '1 hour' THEN 'hour' WHEN now() - created_at < '1 day' THEN 'day'
    WHEN now() - created_at < '7 days' THEN 'week' ELSE 'older' END AS age, count(*)
FROM interrupts WHERE state = 'open' GROUP BY age""")


@dataclass(frozen=True, slots=True)
class Backlog:
    """The number of unfinished runs by status, and the seconds that the first queued run has waited for a worker.

    `interrupts` are the open ones by age: `hour` for those of the last hour, `day`, `week`, or `older`.

    A run that waits for an earlier one of its thread, or for its tenant's limit, doesn't wait for a worker yet.
    """

    unfinished: Mapping[RunStatus, int]
    oldest_seconds: float
    interrupts: Mapping[str, int] = field(default_factory=dict[str, int])


async def backlog(engine: Engine) -> Backlog:
    """Count the unfinished runs and the open interrupts. Raises DatabaseUnavailableError."""
    seconds = func.extract("epoch", func.max(func.now() - runs.c.admitted_at))
    query = select(runs.c.status, func.count(), seconds).where(runs.c.ended_at.is_(None)).group_by(runs.c.status)
    async with reading(engine) as connection:
        found = {RunStatus(row[0]): (row[1], float(row[2] or 0)) for row in await connection.execute(query)}
        asked = {row[0]: row[1] for row in await connection.execute(_OPEN_INTERRUPTS)}
    _, oldest = found.get(RunStatus.QUEUED, (0, 0.0))
    return Backlog({status: count for status, (count, _) in found.items()}, oldest, asked)
