"""The size of the table rows of a thread or of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from psycopg import AsyncConnection
from psycopg.sql import SQL, Composed, Identifier
from sqlalchemy import Table

from starling.infra.postgres.tables.access import metadata

_ROW_BYTES = 28  # of a row's header, and where its page says where it is
_CONDITIONS: Mapping[str, SQL] = {
    "threads": SQL("id = %(thread)s"),
    "branches": SQL("thread_id = %(thread)s"),
    "states": SQL("thread_id = %(thread)s"),
    "runs": SQL("thread_id = %(thread)s"),
    "events": SQL("run_id IN (SELECT id FROM runs WHERE thread_id = %(thread)s)"),
    "steps": SQL("run_id IN (SELECT id FROM runs WHERE thread_id = %(thread)s)"),
    "journal": SQL("run_id IN (SELECT id FROM runs WHERE thread_id = %(thread)s)"),
    "ledger": SQL("run_id IN (SELECT id FROM runs WHERE thread_id = %(thread)s)"),
    "interrupts": SQL("run_id IN (SELECT id FROM runs WHERE thread_id = %(thread)s)"),
    "idempotency_keys": SQL("run_id IN (SELECT id FROM runs WHERE thread_id = %(thread)s)"),
    "audit_events": SQL("payload ->> 'thread_id' = %(thread)s"),
}
_CHECKPOINTS: Mapping[str, Sequence[str]] = {
    "checkpoints": ("thread_id", "checkpoint_id", "parent_checkpoint_id", "checkpoint", "metadata"),
    "checkpoint_blobs": ("thread_id", "channel", "version", "type", "blob"),
    "checkpoint_writes": ("thread_id", "checkpoint_id", "task_id", "channel", "blob"),
}


@dataclass(frozen=True, slots=True)
class Size:
    """Rows, and their bytes as they are stored: compressed where Postgres compresses them, without indexes."""

    rows: int
    bytes: int


async def thread_sizes(url: str, thread: str) -> Mapping[str, Size]:
    """Return what each table holds of a thread, with all its runs."""
    async with await AsyncConnection.connect(url) as connection:
        found = {
            name: await _size(connection, name, _names(metadata.tables[name]), condition, {"thread": thread})
            for name, condition in _CONDITIONS.items()
        }
        ids = SQL("split_part(thread_id, '/', 1) IN (SELECT id::text FROM runs WHERE thread_id = %(thread)s)")
        for name, columns in _CHECKPOINTS.items():
            found[name] = await _size(connection, name, columns, ids, {"thread": thread})
    return found


async def checkpoint_bytes(connection: AsyncConnection) -> int:
    """Return what the checkpoints of all runs take together."""
    sizes = [await _size(connection, name, columns, SQL("true"), {}) for name, columns in _CHECKPOINTS.items()]
    return sum(size.bytes for size in sizes)


def _names(table: Table) -> Sequence[str]:
    return [column.name for column in table.columns]


async def _size(
    connection: AsyncConnection, table: str, columns: Sequence[str], condition: SQL, values: Mapping[str, str]
) -> Size:
    each = SQL(" + ").join(SQL("coalesce(pg_column_size({}), 0)").format(Identifier(name)) for name in columns)
    query: Composed = SQL("SELECT count(*), coalesce(sum({} + {}), 0)::bigint FROM {} WHERE {}").format(
        _ROW_BYTES, each, Identifier(table), condition
    )
    row = await (await connection.execute(query, values)).fetchone()
    assert row is not None
    return Size(*row)
