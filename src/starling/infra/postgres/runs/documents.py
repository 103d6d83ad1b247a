"""Reads the document of a run from its rows, in bounded parts: long texts are cut by the database."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal
from uuid import UUID

from sqlalchemy import TextClause, select, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from starling.core.conversation.turn import STATE_CHARS
from starling.core.errors import NotFoundError
from starling.core.run_document.builder import TEXT_CHARS, Row, RunDocumentBuilder
from starling.core.run_document.document import RunAhead, RunDocument, RunFailure
from starling.core.run_document.rows import AnswerRow, CallRow, EventRow, Kept, RunRow, StepRow
from starling.core.run_status import RunStatus
from starling.core.runs import Run
from starling.core.secrets.look_alikes import mask_keys, mask_keys_in
from starling.infra.postgres.engine import autocommit
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.feedback import FeedbackRepository
from starling.infra.postgres.runs.interrupts import InterruptReader, public_interrupt
from starling.infra.postgres.tables.run_records import runs

type Part = Literal["tasks", "calls", "prompts", "feedback"]
"""What is read beside the run itself: events; ledger and steps; steps and answers of models; feedback."""

ALL_PARTS: Final[tuple[Part, ...]] = ("tasks", "calls", "prompts", "feedback")
WHOLE_CHARS: Final = 2**31 - 1
"""The length of texts for a document that is to have them whole."""

_PAGE: Final = 200  # rows; with texts of 4,000 characters, what one page holds is read in some milliseconds

# What no document has is not read, and may be most of a stream.
_SELECT_EVENTS: Final = text("""
SELECT seq, type, CASE WHEN octet_length(data::text) <= :chars THEN data ELSE (
    SELECT jsonb_object_agg(key, CASE
        WHEN key = 'result' AND data ->> 'call_id' = ANY(CAST(:quoted AS text[])) THEN value
        WHEN jsonb_typeof(value) = 'string' THEN to_jsonb(left(value #>> '{}', :chars))
        WHEN jsonb_typeof(value) = 'object' AND octet_length(value::text) > greatest(:chars, 262144)
            THEN jsonb_build_object('…', left(value::text, :chars))
        WHEN jsonb_typeof(value) = 'array' AND octet_length(value::text) > greatest(:chars, 262144) THEN '[]'::jsonb
        ELSE value END) FROM jsonb_each(data)) END, created_at
FROM events WHERE tenant = :tenant AND run_id = CAST(:run_id AS uuid) AND seq > :after
    AND type NOT IN ('thinking', 'tool_progress', 'tool_event', 'route', 'run_started', 'done')
ORDER BY seq LIMIT :page""")

_SELECT_STEPS: Final = text("""
SELECT id::text, type, metadata FROM steps
WHERE tenant = :tenant AND run_id = CAST(:run_id AS uuid) AND id > CAST(:after AS uuid) ORDER BY id LIMIT :page""")

# Calls whose arguments could not be read, by their index among the calls of tools.
_SELECT_ANSWERS: Final = text("""
SELECT path, position, left(coalesce(data ->> 'content', ''), :chars),
    CASE WHEN jsonb_path_exists(data, '$.tool_calls[*] ? (@.arguments == null)') THEN ARRAY(
        SELECT number - 1 FROM (
            SELECT row_number() OVER (ORDER BY place) AS number, call
            FROM jsonb_array_elements(data -> 'tool_calls') WITH ORDINALITY AS asked (call, place)
            WHERE call ->> 'name' <> 'continue') AS own
        WHERE call -> 'arguments' = 'null'::jsonb) END
FROM journal WHERE tenant = :tenant AND run_id = CAST(:run_id AS uuid) AND kind = 'answer'
    AND (path, position) > (:path, :position)
ORDER BY path, position LIMIT :page""")

_SELECT_CALLS: Final = text("""
SELECT path, position, index, effect, state, coalesce(outcome ->> 'code', ''), dispatched_at, settled_at, settled_by
FROM ledger WHERE tenant = :tenant AND run_id = CAST(:run_id AS uuid)
    AND (path, position, index) > (:path, :position, :index)
ORDER BY path, position, index LIMIT :page""")

_SELECT_ARTIFACTS: Final = text("""
SELECT DISTINCT hash FROM run_artifacts WHERE tenant = :tenant AND run_id = CAST(:run_id AS uuid)""")

_SELECT_FAILURE: Final = text("""
SELECT data ->> 'code', data ->> 'message' FROM events
WHERE tenant = :tenant AND run_id = CAST(:run_id AS uuid) AND type = 'error' AND data ->> 'task_id' IS NULL
ORDER BY seq DESC LIMIT 1""")

_SELECT_AHEAD: Final = text("""
SELECT ahead.id::text, ahead.status FROM runs JOIN runs AS ahead
    ON ahead.tenant = runs.tenant AND ahead.thread_id = runs.thread_id AND ahead.branch_id = runs.branch_id
    AND ahead.arrival < runs.arrival AND ahead.ended_at IS NULL
WHERE runs.tenant = :tenant AND runs.id = CAST(:run_id AS uuid)
ORDER BY ahead.status = 'queued', ahead.arrival LIMIT 1""")

_SELECT_GOVERNANCE: Final = text("""
SELECT data -> 'governance' FROM journal
WHERE tenant = :tenant AND run_id = CAST(:run_id AS uuid)
    AND path = '' AND kind = 'context' AND position = 0 AND index = 0""")

_COLUMNS: Final = (
    *("thread_id", "trace_id", "correlation_id", "epoch", "input", "config"),
    *("created_at", "started_at", "ended_at", "trimmed", "result", "forked_from"),
)


@dataclass(frozen=True, slots=True)
class MostRows:
    """How many rows of a run are read; a document says where there are more."""

    events: int = 20_000
    steps: int = 20_000
    answers: int = 10_000
    calls: int = 20_000


class RunDocumentRepository:
    """Reads runs. Raises DatabaseUnavailableError."""

    def __init__(self, engine: AsyncEngine, most: MostRows | None = None) -> None:
        self._engine = engine
        self._interrupts, self._feedback = InterruptReader(engine), FeedbackRepository(engine)
        self._most = most or MostRows()

    async def row(self, key: RunKey) -> RunRow:
        """Return the row of a run, without `why` and `behind`. Raises NotFoundError, also for runs of other tenants."""
        async with autocommit(self._engine) as connection:
            return await _row(connection, key)

    async def read(self, key: RunKey, parts: Collection[Part] = ALL_PARTS, *, chars: int = TEXT_CHARS) -> RunDocument:
        """Return the document of a run with the parts that are asked for; texts are cut to `chars` characters.

        Results that excerpts of its answer point into are whole. Without parts it has the open interrupts alone.
        Raises NotFoundError, also for runs of other tenants.
        """
        builder = await self.builder(key, parts, chars=chars)
        return await asyncio.to_thread(builder.document)  # a run may have thousands of rows

    async def of_states(self, run: Run) -> RunDocumentBuilder:
        """Return what the states of a run are made of, as far as it is stored. Raises as `read`."""
        return await self.builder(RunKey(run.tenant, run.id), ("tasks",), chars=STATE_CHARS)

    async def builder(self, key: RunKey, parts: Collection[Part], *, chars: int) -> RunDocumentBuilder:
        """Return what `read` makes the document of, to which later rows can be added. Raises as `read`."""
        async with autocommit(self._engine) as connection:
            row = await _row(connection, key)
            begin, quoted = row.created_at, _quoted_calls(row) if chars >= TEXT_CHARS else []
            builder = RunDocumentBuilder(chars, quoted)
            builder.take(_masked(await _completed(connection, key, row)), begin)
            values = {"tenant": key.tenant, "run_id": key.id, "chars": chars, "quoted": quoted}
            pages = _Reading(connection, values)
            async for item, at in pages.parts(parts, self._most):
                builder.take(item, at or begin)
        for asked in await self._interrupts.of_run(key):
            if parts or (asked.state == "open" and row.ended_at is None):
                shown = public_interrupt(asked)
                masked = replace(shown, message=mask_keys(shown.message), answer=mask_keys(shown.answer))
                builder.take(masked, begin)
        if "feedback" in parts:
            for given in await self._feedback.of_run(key):
                builder.take(given, begin)
        return builder


@dataclass(frozen=True, slots=True)
class _Pages:
    """A query for the next page after the key of a row, its first columns; `what` names its rows."""

    what: str
    query: TextClause
    first: Mapping[str, Any]  # the key before the first row


_EVENTS: Final = _Pages("events", _SELECT_EVENTS, {"after": 0})
_STEPS: Final = _Pages("steps", _SELECT_STEPS, {"after": str(UUID(int=0))})
_ANSWERS: Final = _Pages("answers of models", _SELECT_ANSWERS, {"path": "", "position": -1})
_CALLS: Final = _Pages("calls that may change something", _SELECT_CALLS, {"path": "", "position": -1, "index": -1})


@dataclass(slots=True)
class _Reading:
    """Reads the rows of one run page by page; `unread` says of which there were more."""

    connection: AsyncConnection
    values: Mapping[str, Any]
    unread: list[str] = field(default_factory=list[str])

    async def parts(self, parts: Collection[Part], most: MostRows) -> AsyncIterator[tuple[Row, datetime | None]]:
        """Yield the rows of these parts, each with its time where it has one."""
        if "tasks" in parts:
            async for seq, kind, data, at in self._rows(_EVENTS, most.events):
                yield EventRow(seq, kind, data), at
        if "calls" in parts or "prompts" in parts:
            number = 0
            async for step_id, kind, metadata in self._rows(_STEPS, most.steps):
                number += 1
                # The time in the id: the row itself is written later, together with others.
                at = datetime.fromtimestamp((UUID(step_id).int >> 80) / 1000, UTC)
                yield StepRow(number, kind, metadata), at
        if "prompts" in parts:
            async for path, position, content, malformed in self._rows(_ANSWERS, most.answers):
                yield AnswerRow(path, position, mask_keys(content), frozenset(malformed or ())), None
        if "calls" in parts:
            async for path, position, index, *known in self._rows(_CALLS, most.calls):
                yield CallRow(f"{path}.{position}.{index}", *known), None
            kept = (await self.connection.scalars(_SELECT_ARTIFACTS, self.values)).all()
            yield Kept(frozenset(kept), tuple(self.unread)), None
        elif self.unread:
            yield Kept(None, tuple(self.unread)), None

    async def _rows(self, pages: _Pages, most: int) -> AsyncIterator[Sequence[Any]]:
        """Yield the rows of all pages, at most so many."""
        key, size, read = pages.first, _PAGE, 0
        while size == _PAGE:
            page = (await self.connection.execute(pages.query, {**self.values, **key, "page": _PAGE})).all()
            size, shown = len(page), page[: most - read]
            for row in shown:
                yield row
            read += len(shown)
            if len(shown) < size:
                self.unread.append(f"Only the first {most:,} {pages.what} were read: the run has more.")
                return
            if page:
                key = dict(zip(pages.first, page[-1], strict=False))


def _quoted_calls(row: RunRow) -> list[str]:
    """Return the calls whose results excerpts of the answer point into; what points into an artifact is read there."""
    sources: list[Any] = (row.result or {}).get("citations", [])
    excerpts = [excerpt for source in sources for excerpt in source.get("excerpts", ())]
    return list({one["call_id"] for one in excerpts if "call_id" in one and "artifact" not in one})


async def _row(connection: AsyncConnection, key: RunKey) -> RunRow:
    columns = [runs.c[name] for name in (*_COLUMNS, "status", "seq", "fence")]
    query = select(*columns).where(runs.c.tenant == key.tenant, runs.c.id == key.id)
    row = (await connection.execute(query)).mappings().one_or_none()
    if row is None:
        raise NotFoundError("run", key.id)
    known = {name: row[name] for name in _COLUMNS}
    return RunRow(run_id=key.id, status=RunStatus(row["status"]), events=row["seq"], claims=row["fence"], **known)


async def _completed(connection: AsyncConnection, key: RunKey, row: RunRow) -> RunRow:
    """Return the row with what it is allowed and what ended it early, or with the run that a queued one waits for."""
    values = {"tenant": key.tenant, "run_id": key.id}
    if row.status is RunStatus.QUEUED:
        ahead = (await connection.execute(_SELECT_AHEAD, values)).one_or_none()
        return replace(row, behind=RunAhead(ahead[0], RunStatus(ahead[1]))) if ahead else row
    row = replace(row, governance=await connection.scalar(_SELECT_GOVERNANCE, values))
    if row.ended_at is not None and row.status is not RunStatus.SUCCEEDED:
        error = (await connection.execute(_SELECT_FAILURE, values)).one_or_none()
        return replace(row, why=RunFailure(*error)) if error else row
    return row


def _masked(row: RunRow) -> RunRow:
    """Return the row with `***` where something looks like a key. Events and steps are stored masked."""
    result: Any = mask_keys_in(row.result) if row.result else None
    origin: Any = mask_keys_in(row.forked_from) if row.forked_from else None
    return replace(row, input=mask_keys(row.input), result=result, forked_from=origin)
