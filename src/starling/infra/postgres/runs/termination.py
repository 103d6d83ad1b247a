"""Early termination of runs: a run that a worker holds is flagged, any other is claimed under the next fence."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from psycopg.types.json import Jsonb

from starling.core.errors import NotFoundError
from starling.core.json import JsonObject
from starling.core.runs import RunStatus
from starling.core.tool_calls import AFTER_RUN_END
from starling.infra.postgres.engine import Repository, execute_autocommit, fetch_autocommit
from starling.infra.postgres.runs.acceptance import Claim, RunKey
from starling.infra.postgres.runs.busy_thread_policy import CANCEL_CHANNEL as CHANNEL
from starling.infra.postgres.runs.leases import CLAIMED, claim_of
from starling.infra.postgres.runs.writer import Clause

# A worker with a valid lease is notified; a run without one is claimed. The flag stays in both cases: if the claimant
# does not finish the run, the next execution only ends it.
_STOP = f"""
WITH found AS (
    SELECT tenant, id, status = 'running' AND coalesce(lease_until >= now(), false) AS held FROM runs
    WHERE tenant = %(tenant)s AND id = %(id)s AND ended_at IS NULL FOR UPDATE),
stopped AS (
    UPDATE runs SET cancel_requested = true,
        fence = fence + (NOT found.held)::int,
        status = CASE WHEN runs.status = 'waiting' THEN 'queued' ELSE runs.status END
    FROM found WHERE runs.tenant = found.tenant AND runs.id = found.id
    RETURNING runs.*, found.held),
notified AS (SELECT pg_notify('{CHANNEL}', '') FROM stopped WHERE held)
SELECT held, (SELECT count(*) FROM notified), {CLAIMED} FROM stopped"""  # noqa: S608 - our own text

_STATUS = "SELECT status FROM runs WHERE tenant = %(tenant)s AND id = %(id)s"

_FLAGGED = "SELECT id::text FROM runs WHERE ended_at IS NULL AND status = 'running' AND cancel_requested"

_OPEN_CALLS = """
SELECT started.data ->> 'name', started.data -> 'args', started.data ->> 'call_id', ledger.state,
    ledger.outcome ->> 'text', ledger.outcome ->> 'artifact', started.data ->> 'path'
FROM events AS started LEFT JOIN ledger
    ON ledger.tenant = started.tenant AND ledger.run_id = started.run_id AND ledger.path = started.data ->> 'path'
    AND started.data ->> 'call_id' = concat_ws('.', ledger.path, ledger.position, ledger.index)
WHERE started.tenant = %(tenant)s AND started.run_id = %(id)s AND started.type = 'tool_start' AND NOT EXISTS (
    SELECT FROM events AS answered WHERE answered.tenant = started.tenant AND answered.run_id = started.run_id
    AND answered.type = 'tool_result' AND answered.data ->> 'call_id' = started.data ->> 'call_id')
ORDER BY started.seq"""

_OPEN_TASKS = """
SELECT DISTINCT ON (started.data ->> 'path') started.data ->> 'task_id', started.data ->> 'agent',
    started.data ->> 'path', (started.data ->> 'attempt')::int
FROM events AS started
WHERE started.tenant = %(tenant)s AND started.run_id = %(id)s AND started.type = 'task_start' AND NOT EXISTS (
    SELECT FROM events AS ended WHERE ended.tenant = started.tenant AND ended.run_id = started.run_id
    AND ended.type = 'task_result' AND ended.data ->> 'path' = started.data ->> 'path' AND ended.seq > started.seq)
ORDER BY started.data ->> 'path', started.seq DESC"""

_FLAGGED_BEFORE = """
SELECT earlier.tenant, earlier.id::text FROM runs AS earlier JOIN runs AS run
    ON run.tenant = earlier.tenant AND run.thread_id = earlier.thread_id AND run.branch_id = earlier.branch_id
WHERE run.tenant = %(tenant)s AND run.id = %(id)s AND earlier.arrival < run.arrival
AND earlier.ended_at IS NULL AND earlier.cancel_requested ORDER BY earlier.arrival DESC"""


# An ended run no longer needs its checkpoints (their `thread_id` is the run id) or the journal entries used only to
# resume it. Kept until retention deletes them: answers of models and tools, which are stored nowhere else, what forks
# begin with, the main star's decisions and outcomes, and what the run was allowed.
DELETE_PROGRESS: Final = Clause(
    """
forgotten_blobs AS (DELETE FROM checkpoint_blobs USING fenced WHERE checkpoint_blobs.thread_id = fenced.id::text),
forgotten_writes AS (DELETE FROM checkpoint_writes USING fenced WHERE checkpoint_writes.thread_id = fenced.id::text),
forgotten AS (DELETE FROM checkpoints USING fenced WHERE checkpoints.thread_id = fenced.id::text),
forgotten_journal AS (
    DELETE FROM journal USING fenced WHERE journal.tenant = fenced.tenant AND journal.run_id = fenced.id
    AND ((journal.kind = 'context' AND journal.path <> '') OR (journal.kind = 'result' AND (journal.data = '{}'
        OR NOT starts_with(journal.path, 'supervisor/')
            AND (strpos(journal.path, '/') > 0 OR NOT jsonb_exists(journal.data, 'task_id'))))))""",
    {},
)

# Open interrupts are cancelled. A call with an unknown outcome is settled in the state that the state table gives it.
_UNKNOWN: Final = ", ".join(f"'{state}'" for state in AFTER_RUN_END)
_AFTER: Final = " ".join(f"WHEN '{state}' THEN '{after}'" for state, after in AFTER_RUN_END.items())
_CLOSE: Final = f"""
closed AS (
    UPDATE interrupts SET state = 'cancelled', answered_at = now() FROM fenced
    WHERE interrupts.tenant = fenced.tenant AND interrupts.run_id = fenced.id AND interrupts.state = 'open'),
settled AS (
    UPDATE ledger SET state = CASE ledger.state {_AFTER} END, outcome = coalesce(outcome, %(lost)s),
        settled_at = now(), settled_by = %(by)s
    FROM fenced WHERE ledger.tenant = fenced.tenant AND ledger.run_id = fenced.id
    AND ledger.state IN ({_UNKNOWN}) AND ledger.settled_at IS NULL)"""  # noqa: S608 - our own text


def close_open_work(lost: JsonObject, by: str) -> Clause:
    """Return the clause that closes a run's open interrupts and calls; `lost` is the outcome for calls without one."""
    return Clause(_CLOSE, {"lost": Jsonb(lost), "by": by})


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A tool call with a `tool_start` event and no `tool_result`.

    `state` is the state of its ledger row, or None without one; `text` is the outcome stored there, `artifact` the
    address of the full outcome, `path` the place of its task.
    """

    name: str
    arguments: JsonObject
    call_id: str
    state: str | None
    text: str | None
    artifact: str | None
    path: str


@dataclass(frozen=True, slots=True)
class OpenTask:
    """A task that has started and has no result; `attempt` is the last one started."""

    task_id: str
    agent: str
    path: str
    attempt: int


class TerminationRepository(Repository):
    """Queries for ending runs early. Each public method is one transaction."""

    async def stop(self, key: RunKey) -> Claim | None:
        """Flag a run as cancelled; if no worker holds it, claim it and return the claim to end it with.

        Returns None if a worker holds it or it has ended. Raises NotFoundError, also for a run of another tenant.
        """
        row = await execute_autocommit(self._engine, _STOP, {"tenant": key.tenant, "id": key.id})
        if row is None:
            await self.status(key)
            return None
        held, _, *claimed = row
        return None if held else claim_of(tuple(claimed))

    async def status(self, key: RunKey) -> RunStatus:
        """Return the status of a run. Raises NotFoundError, also for a run of another tenant."""
        row = await execute_autocommit(self._engine, _STATUS, {"tenant": key.tenant, "id": key.id})
        if row is None:
            raise NotFoundError("run", key.id)
        return RunStatus(row[0])

    async def flagged(self) -> frozenset[str]:
        """Return the ids of running runs that are flagged as cancelled."""
        return frozenset(row[0] for row in await fetch_autocommit(self._engine, _FLAGGED, {}))

    async def open_calls(self, key: RunKey) -> Sequence[OpenCall]:
        """Return the tool calls that have started and have no result, oldest first."""
        found = await fetch_autocommit(self._engine, _OPEN_CALLS, {"tenant": key.tenant, "id": key.id})
        return [OpenCall(*row) for row in found]

    async def open_tasks(self, key: RunKey) -> Sequence[OpenTask]:
        """Return the tasks that have started and have no result, those inside teams before their team's."""
        found = await fetch_autocommit(self._engine, _OPEN_TASKS, {"tenant": key.tenant, "id": key.id})
        return sorted((OpenTask(*row) for row in found), key=lambda task: -task.path.count("/"))

    async def flagged_before(self, key: RunKey) -> Sequence[RunKey]:
        """Return the flagged unfinished runs earlier on the run's branch, latest first."""
        found = await fetch_autocommit(self._engine, _FLAGGED_BEFORE, {"tenant": key.tenant, "id": key.id})
        return [RunKey(*row) for row in found]
