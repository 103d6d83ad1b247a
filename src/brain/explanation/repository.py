"""Reads the rows of a run that its explanation is made of, in bounded parts: long texts are cut by the database."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import TextClause, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from brain.explanation.rows import (
    TEXT_CHARS,
    AnswerRow,
    EventRow,
    KeyRow,
    OutcomeRow,
    RunRow,
    RunRows,
    SkillRow,
    StepRow,
)
from brain.skills.skill import call_from_json
from starling.core.errors import NotFoundError
from starling.core.principal import SHARED, Grant
from starling.core.run_status import RunStatus
from starling.core.tool_calls import CallState, Effect
from starling.infra.postgres.engine import translated
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.interrupts import InterruptReader
from starling.infra.postgres.runs.ledger import LedgerRow
from starling.infra.postgres.tables import keys, runs, skills

_PAGE: Final = 200  # rows; with texts of 4,000 characters, what one page holds is read in some milliseconds

# What tells nothing of a cause, and may be most of a stream, is not read.
_SELECT_EVENTS: Final = text("""
SELECT seq, type, CASE WHEN octet_length(data::text) <= :chars THEN data ELSE (
    SELECT jsonb_object_agg(key, CASE
        WHEN jsonb_typeof(value) = 'string' THEN to_jsonb(left(value #>> '{}', :chars))
        WHEN jsonb_typeof(value) = 'object' AND octet_length(value::text) > :chars
            THEN jsonb_build_object('…', left(value::text, :chars))
        WHEN jsonb_typeof(value) = 'array' AND octet_length(value::text) > 262144 THEN '[]'::jsonb
        ELSE value END) FROM jsonb_each(data)) END, created_at
FROM events WHERE tenant = :tenant AND run_id = CAST(:run_id AS uuid) AND seq > :after
    AND type NOT IN ('thinking', 'tool_progress', 'tool_log', 'tool_event', 'route', 'run_started', 'done')
ORDER BY seq LIMIT :page""")

_SELECT_STEPS: Final = text("""
SELECT id::text, type, left(description, 200), metadata, created_at FROM steps
WHERE tenant = :tenant AND run_id = CAST(:run_id AS uuid) AND id > CAST(:after AS uuid) ORDER BY id LIMIT :page""")

# Calls whose arguments could not be read, by their index among the calls of tools.
_SELECT_ANSWERS: Final = text("""
SELECT path, position,
    left(coalesce(data ->> 'content', ''), CASE WHEN path LIKE '%supervisor/%' THEN 4 * :chars ELSE :chars END),
    left(coalesce(data ->> 'fault', ''), :chars),
    CASE WHEN jsonb_path_exists(data, '$.tool_calls[*] ? (@.arguments == null)') THEN ARRAY(
        SELECT number - 1 FROM (
            SELECT row_number() OVER (ORDER BY place) AS number, call
            FROM jsonb_array_elements(data -> 'tool_calls') WITH ORDINALITY AS asked (call, place)
            WHERE call ->> 'name' <> 'continue') AS own
        WHERE call -> 'arguments' = 'null'::jsonb) END
FROM journal WHERE tenant = :tenant AND run_id = CAST(:run_id AS uuid) AND kind = 'answer'
    AND (path, position) > (:path, :position)
ORDER BY path, position LIMIT :page""")

_SELECT_OUTCOMES: Final = text("""
SELECT path, position, index, coalesce(data ->> 'code', ''), coalesce(data ->> 'observation', ''),
    coalesce(CAST(data ->> 'duration_ms' AS double precision), 0)
FROM journal WHERE tenant = :tenant AND run_id = CAST(:run_id AS uuid) AND kind = 'tool'
    AND (path, position, index) > (:path, :position, :index)
ORDER BY path, position, index LIMIT :page""")

_SELECT_LEDGER: Final = text("""
SELECT key, path, position, index, tool, effect,
    CASE WHEN octet_length(arguments::text) <= :chars THEN arguments ELSE '{}'::jsonb END, state,
    jsonb_build_object('text', left(outcome ->> 'text', :chars), 'code', coalesce(outcome ->> 'code', '')),
    fence, settled_at IS NOT NULL, settled_by, created_at, dispatched_at, settled_at, idempotency_key
FROM ledger WHERE tenant = :tenant AND run_id = CAST(:run_id AS uuid) AND key > :after ORDER BY key LIMIT :page""")

_SELECT_SERVERS: Final = text("""
SELECT server.key, server.value ->> 'state', CASE WHEN server.key = ANY(:called) THEN ARRAY(
    SELECT jsonb_object_keys(coalesce(server.value -> 'tools', '{}'))) END
FROM epochs, jsonb_each(manifest -> 'servers') AS server
WHERE tenant = :shared AND number = :epoch
    AND (jsonb_array_length(coalesce(server.value -> 'tenants', '[]')) = 0 OR server.value -> 'tenants' ? :tenant)""")

_SELECT_ARTIFACTS: Final = text("""
SELECT DISTINCT hash FROM run_artifacts WHERE tenant = :tenant AND run_id = CAST(:run_id AS uuid)""")


@dataclass(frozen=True, slots=True)
class MostRows:
    """How many rows of a run are read; what is beyond is said not to have been read."""

    events: int = 20_000
    steps: int = 20_000
    answers: int = 10_000
    calls: int = 20_000


class ExplanationRepository:
    """Reads the rows of runs. Raises DatabaseUnavailableError."""

    def __init__(self, engine: AsyncEngine, most: MostRows | None = None) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")  # reads need no BEGIN
        self._most = most or MostRows()

    async def rows(self, key: RunKey) -> tuple[RunRows, datetime]:
        """Return the rows of a run, and the time of the database. Raises NotFoundError, also for other tenants."""
        with translated():
            async with self._engine.connect() as connection:
                run, now = await _run(connection, key)
                reading = _Reading(connection, {"tenant": key.tenant, "run_id": key.id, "chars": TEXT_CHARS})
                most, events = self._most, await reading.rows(_EVENTS, self._most.events)
                stored = [EventRow(*row) for row in events]
                steps = await reading.rows(_STEPS, most.steps)
                servers = await _servers(connection, run.epoch, key.tenant, stored)
                found = RunRows(
                    run=run,
                    events=stored,
                    steps=[_step(number, row) for number, row in enumerate(steps, start=1)],
                    answers=[_answer(row) for row in await reading.rows(_ANSWERS, most.answers)],
                    outcomes=[_outcome(row) for row in await reading.rows(_OUTCOMES, most.calls)],
                    ledger=_in_order([_ledger_row(row) for row in await reading.rows(_LEDGER, most.calls)]),
                    skills=await _skills(connection, key.tenant, stored),
                    key=await _key(connection, run.key_id),
                    servers={name: state for name, state, _ in servers},
                    tools={name: sorted(tools) for name, _, tools in servers if tools},
                    artifacts=frozenset((await connection.scalars(_SELECT_ARTIFACTS, reading.values)).all()),
                    unread=reading.unread,
                )
        return replace(found, interrupts=await InterruptReader(self._engine).of_run(key)), now


@dataclass(frozen=True, slots=True)
class _Pages:
    """A query for the next page after the key of a row, its first columns; `what` names its rows."""

    what: str
    query: TextClause
    first: Mapping[str, Any]  # the key before the first row


_EVENTS: Final = _Pages("events", _SELECT_EVENTS, {"after": 0})
_STEPS: Final = _Pages("steps", _SELECT_STEPS, {"after": str(UUID(int=0))})
_ANSWERS: Final = _Pages("answers of models", _SELECT_ANSWERS, {"path": "", "position": -1})
_OUTCOMES: Final = _Pages("results of calls", _SELECT_OUTCOMES, {"path": "", "position": -1, "index": -1})
_LEDGER: Final = _Pages("calls that may change something", _SELECT_LEDGER, {"after": ""})


@dataclass(slots=True)
class _Reading:
    """Reads the rows of one run page by page; `unread` says of which there were more."""

    connection: AsyncConnection
    values: Mapping[str, Any]
    unread: list[str] = field(default_factory=list[str])

    async def rows(self, pages: _Pages, most: int) -> list[Sequence[Any]]:
        """Return the rows of all pages, at most so many."""
        found: list[Sequence[Any]] = []
        key, size = pages.first, _PAGE
        while size == _PAGE and len(found) <= most:
            values = {**self.values, **key, "page": _PAGE}
            page = (await self.connection.execute(pages.query, values)).all()
            found += page
            size = len(page)
            if page:
                key = dict(zip(pages.first, page[-1], strict=False))
        if len(found) > most:
            self.unread.append(f"Only the first {most:,} {pages.what} were read: the run has more.")
        return found[:most]


async def _run(connection: AsyncConnection, key: RunKey) -> tuple[RunRow, datetime]:
    names = ("status", "epoch", "input", "config", "created_at", "started_at", "deadline", "ended_at")
    names = (*names, "crashes", "isolation", "cancel_requested", "trimmed", "result")
    columns = [runs.c[name] for name in (*names, "fence", "seq", "principal")]
    query = select(*columns, func.now().label("now")).where(runs.c.tenant == key.tenant, runs.c.id == key.id)
    row = (await connection.execute(query)).mappings().one_or_none()
    if row is None:
        raise NotFoundError("run", key.id)
    principal: Mapping[str, Any] = row["principal"] or {}
    run = RunRow(
        id=key.id,
        **{name: row[name] for name in names[1:]},
        status=RunStatus(row["status"]),
        key_id=str(principal.get("key_id") or ""),
        grant=Grant.from_json(principal.get("grant")),
        claims=row["fence"],
        last_event=row["seq"],
    )
    return run, row["now"]


def _step(number: int, row: Sequence[Any]) -> StepRow:
    """Return a step with the time in its id: the row itself is written later, together with others."""
    key, kind, description, metadata, _ = row
    made = datetime.fromtimestamp((UUID(key).int >> 80) / 1000, UTC)
    return StepRow(number, kind, description, metadata, made)


def _answer(row: Sequence[Any]) -> AnswerRow:
    path, position, content, fault, malformed = row
    return AnswerRow(path, position, content, fault, frozenset(malformed or ()))


def _outcome(row: Sequence[Any]) -> OutcomeRow:
    path, position, index, code, observation, milliseconds = row
    return OutcomeRow(f"{path}.{position}.{index}", code, observation, milliseconds)


def _ledger_row(row: Sequence[Any]) -> LedgerRow:
    found = LedgerRow(*row)
    return replace(found, effect=Effect(found.effect), state=CallState(found.state))


def _in_order(found: Sequence[LedgerRow]) -> list[LedgerRow]:
    return sorted(found, key=lambda row: (str(row.created_at), row.path, row.position, row.index))


async def _skills(connection: AsyncConnection, tenant: str, events: Sequence[EventRow]) -> list[SkillRow]:
    """Return the skills that tasks of the run had in their prompts, as they are now."""
    used = {used["id"] for event in events if event.type == "task_result" for used in event.data.get("skills") or ()}
    if not used:
        return []
    names = ("id", "state", "reason", "template", "calls")
    query = select(*(skills.c[name] for name in names)).where(skills.c.tenant == tenant, skills.c.id.in_(used))
    return [
        SkillRow(str(row.id), row.state, row.reason, row.template, tuple(map(call_from_json, row.calls)))
        for row in await connection.execute(query)
    ]


async def _key(connection: AsyncConnection, key_id: str) -> KeyRow | None:
    """Return the key of a run, None for a run that needed none."""
    try:
        known = UUID(key_id)
    except ValueError:
        return None
    query = select(keys.c.name, keys.c.revoked_at, keys.c.expires_at).where(keys.c.id == str(known))
    row = (await connection.execute(query)).one_or_none()
    return KeyRow(*row) if row else None


async def _servers(
    connection: AsyncConnection, epoch: int, tenant: str, events: Sequence[EventRow]
) -> Sequence[tuple[str, str, Sequence[str] | None]]:
    """Return the servers of an epoch that a tenant sees: each with its state, and its tools if one was called."""
    called = {event.data["name"].partition(".")[0] for event in events if event.type == "tool_start"}
    values = {"shared": SHARED, "epoch": epoch, "tenant": tenant, "called": sorted(called)}
    found = await connection.execute(_SELECT_SERVERS, values)
    return [(name, state, tools) for name, state, tools in found]
