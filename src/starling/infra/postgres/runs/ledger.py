"""The ledger: a row for each tool call that may change something, keyed so that it is never silently made twice."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from psycopg.types.json import Jsonb

from starling.core.forks import NotForkableError
from starling.core.json import JsonObject, storable
from starling.core.tool_calls import CallState, Effect
from starling.infra.postgres.engine import Repository, fetch_autocommit
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.writer import Clause

_STORE: Final = """
ledgered AS (
    INSERT INTO ledger (tenant, run_id, key, path, position, index, tool, effect, arguments, state, outcome,
        correlation_id, idempotency_key, fence, dispatched_at, settled_at, settled_by, attempt, declared, reads,
        reused_key, seconds)
    SELECT fenced.tenant, fenced.id, item.key, item.path, item.position, item.index, item.tool, item.effect,
        item.arguments, item.state, item.outcome, %(ledger_correlation)s, item.idempotency_key,
        item.fence,
        CASE WHEN item.state = 'dispatched' THEN now() END, CASE WHEN item.settled THEN now() END, item.settled_by,
        item.attempt, item.declared, item.reads, item.reused_key, item.seconds
    FROM fenced, jsonb_to_recordset(%(ledger)s) AS item (key text, path text, position int, index int, tool text,
        effect text, arguments jsonb, state text, outcome jsonb, idempotency_key text, fence bigint, settled bool,
        settled_by text, attempt int, declared bool, reads bool, reused_key text, seconds float8)
    ON CONFLICT (tenant, run_id, key) DO UPDATE SET state = EXCLUDED.state, outcome = EXCLUDED.outcome,
        fence = EXCLUDED.fence, dispatched_at = coalesce(EXCLUDED.dispatched_at, ledger.dispatched_at),
        settled_at = EXCLUDED.settled_at, settled_by = EXCLUDED.settled_by, reused_key = EXCLUDED.reused_key,
        seconds = EXCLUDED.seconds)"""

_CALLS: Final = """
SELECT key, path, position, index, tool, effect, arguments, state, outcome, fence, settled_at IS NOT NULL, settled_by,
    created_at, dispatched_at, settled_at, idempotency_key, attempt, declared, reused_key, reads, seconds
FROM ledger WHERE tenant = %(tenant)s AND run_id = %(id)s ORDER BY created_at, path, position, index"""

_ORIGINALS: Final = """
WITH RECURSIVE line (id, forks) AS (
    SELECT forked_from ->> 'run', 1 FROM runs WHERE tenant = %(tenant)s AND id = %(id)s
    UNION ALL
    SELECT forked_from ->> 'run', forks + 1
    FROM line JOIN runs ON runs.tenant = %(tenant)s AND runs.id = line.id::uuid)
SELECT line.id, coalesce(trimmed > 0, true)
FROM line LEFT JOIN runs ON runs.tenant = %(tenant)s AND runs.id = line.id::uuid
WHERE line.id IS NOT NULL ORDER BY forks"""

_BY_DATABASE: Final = ("created_at", "dispatched_at", "settled_at")


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """A call and what is known of it. `fence` is that of the process that sent it last, 0 before it was sent.

    `outcome` is a ToolOutcome as JSON; the call is `settled` once it is what the run goes on with. A settled call may
    stay `in_doubt`: then it was given up, or a repeat of it is harmless. `settled_by` says who or what decided, where
    the call's own answer didn't. `idempotency_key` is None where the server was sent `key` itself. `attempt` is the one
    at its task, `reused_key` that of the call whose result it was given. It `reads` where nobody declared the tool's
    effect and its annotations say that it only reads. `seconds` is its time limit, once it was sent.
    """

    key: str
    path: str
    position: int
    index: int
    tool: str
    effect: Effect
    arguments: JsonObject
    state: CallState
    outcome: JsonObject | None = None
    fence: int = 0
    settled: bool = False
    settled_by: str | None = None
    created_at: datetime | None = None
    dispatched_at: datetime | None = None
    settled_at: datetime | None = None
    idempotency_key: str | None = None
    attempt: int = 1
    declared: bool = False
    reused_key: str | None = None
    reads: bool = False
    seconds: float | None = None

    @property
    def sent_key(self) -> str:
        """The idempotency key that the server is sent."""
        return self.idempotency_key or self.key

    @property
    def call_id(self) -> str:
        """The call's id in the events of its run."""
        return f"{self.path}.{self.position}.{self.index}"

    @property
    def text(self) -> str:
        """The text of the call's outcome, empty without one."""
        return str((self.outcome or {}).get("text", ""))

    def as_json(self) -> dict[str, Any]:
        """Return the columns that the run itself writes."""
        return {name: getattr(self, name) for name in self.__match_args__ if name not in _BY_DATABASE}


def storing(rows: Iterable[LedgerRow], correlation_id: str) -> Clause:
    """Return the part of a flush that stores rows, new or changed; each key at most once."""
    stored = [storable(row.as_json()) for row in rows]
    return Clause(_STORE, {"ledger": Jsonb(stored), "ledger_correlation": correlation_id})


class LedgerReader(Repository):
    """Reads the calls of any run."""

    async def calls(self, key: RunKey) -> Sequence[LedgerRow]:
        """Return a run's calls that may change something, in the order in which they were intended."""
        found = await fetch_autocommit(self._engine, _CALLS, {"tenant": key.tenant, "id": key.id})
        rows = [LedgerRow(*row) for row in found]
        return [replace(row, state=CallState(row.state), effect=Effect(row.effect)) for row in rows]

    async def calls_of_originals(self, key: RunKey, *, live: bool) -> Sequence[LedgerRow]:
        """Return the calls that were sent by the run that a fork began with, and by those before it, nearest first.

        Raises NotForkableError for a live fork if some are not known any more: it could send them again.
        """
        origins = await fetch_autocommit(self._engine, _ORIGINALS, {"tenant": key.tenant, "id": key.id})
        if live and any(is_pruned for _, is_pruned in origins):
            text = "The run that this one is a fork of was pruned meanwhile: what it sent is not known."
            raise NotForkableError(text, "Fork another run, or send the request again.")
        calls = [call for origin, _ in origins for call in await self.calls(RunKey(key.tenant, origin))]
        return [call for call in calls if call.dispatched_at]
