"""LangGraph's checkpoints, written by the run's own writer and so under its fence."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_serializable_checkpoint_metadata,
)
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.postgres.base import BasePostgresSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import TASKS
from psycopg.types.json import Jsonb

from starling.infra.postgres.engine import Engine, driver, translated
from starling.infra.postgres.runs.writer import Clause, RunWriter

# The stock saver's statements, with all rows at once.
_STORE = """
blobs AS (
    INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)
    SELECT item.* FROM fenced, unnest(
        %(blob_threads)s::text[], %(blob_namespaces)s::text[], %(blob_channels)s::text[], %(blob_versions)s::text[],
        %(blob_types)s::text[], %(blobs)s::bytea[]) AS item
    ON CONFLICT DO NOTHING),
checkpointed AS (
    INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata)
    SELECT %(thread)s, %(namespace)s, %(checkpoint_id)s, %(parent_id)s, %(checkpoint)s, %(metadata)s FROM fenced
    ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id)
    DO UPDATE SET checkpoint = EXCLUDED.checkpoint, metadata = EXCLUDED.metadata)"""
# A run continues from its newest checkpoint only. These two don't see rows that the same statement inserts.
_SUPERSEDE = """,
superseded_blobs AS (
    DELETE FROM checkpoint_blobs AS old USING fenced
    WHERE old.thread_id = %(thread)s AND old.checkpoint_ns = %(namespace)s
    AND old.version IS DISTINCT FROM %(checkpoint)s -> 'channel_versions' ->> old.channel),
superseded AS (
    DELETE FROM checkpoints AS old USING fenced
    WHERE old.thread_id = %(thread)s AND old.checkpoint_ns = %(namespace)s
    AND old.checkpoint_id <> %(checkpoint_id)s)"""
_BLOB_COLUMNS = ("blob_threads", "blob_namespaces", "blob_channels", "blob_versions", "blob_types", "blobs")


@dataclass(slots=True)
class _Unwritten:
    """What the next batch stores: the newest checkpoint's row, and the newest value and version of each channel.

    Values are serialised only when they are stored: most are replaced before that.
    """

    checkpoint: dict[str, Any] = field(default_factory=dict[str, Any])
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    versions: ChannelVersions = field(default_factory=dict[str, str | int | float])
    taken: bool = False


class FencedSaver(BasePostgresSaver):
    """The stock saver's tables and formats on the writer's connection; the checkpoint's thread is the run.

    A node's writes between two checkpoints aren't stored: the journal makes it free to run the node again.
    """

    def __init__(self, engine: Engine, writer: RunWriter) -> None:
        # without a list of allowed types a crafted row could run code when it is read
        super().__init__(serde=JsonPlusSerializer(allowed_msgpack_modules=None))
        self._engine = engine
        self._writer = writer
        self._unwritten = _Unwritten(taken=True)
        self._is_first = writer.run.fence == 1  # there is no earlier checkpoint to delete

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the newest checkpoint; a run in its first execution has none, which needs no query."""
        return None if self._writer.run.fence == 1 else await self.stored(config)

    async def stored(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the newest checkpoint, of any execution."""
        with translated():
            async with self._engine.connect() as connection:
                return await AsyncPostgresSaver(await driver(connection), serde=self.serde).aget_tuple(config)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint together with the events and records before it, and wait until they are durable.

        If nothing else is pending, the node had no effects and can run again: its checkpoint is written with the next
        batch. The last checkpoint isn't waited for either: the end of the run follows and doesn't need it.
        """
        place = config.get("configurable", {})
        run_id, namespace = place["thread_id"], place.get("checkpoint_ns", "")
        inline, apart = _split(checkpoint["channel_values"])
        if self._unwritten.taken:
            self._unwritten = _Unwritten()
            self._writer.add(self._clause, until_end=True)
        versions = {channel: version for channel, version in new_versions.items() if channel in apart}
        self._unwritten.versions |= versions
        self._unwritten.values |= {channel: apart[channel] for channel in versions}
        self._unwritten.checkpoint = {
            "thread": run_id,
            "namespace": namespace,
            "checkpoint_id": checkpoint["id"],
            "parent_id": place.get("checkpoint_id"),
            "checkpoint": Jsonb({**checkpoint, "channel_values": inline}),
            "metadata": Jsonb(get_serializable_checkpoint_metadata(config, metadata)),
        }
        if self._writer.has_pending_records and _has_next_node(checkpoint):
            await self._writer.flush()
        stored = {"thread_id": run_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint["id"]}
        return {"configurable": stored}

    def _clause(self) -> Clause:
        statement = _STORE if self._is_first else _STORE + _SUPERSEDE
        self._is_first = False
        self._unwritten.taken = True
        checkpoint = self._unwritten.checkpoint
        blobs = self._dump_blobs(
            checkpoint["thread"], checkpoint["namespace"], self._unwritten.values, self._unwritten.versions
        )
        columns = zip(*blobs, strict=True) if blobs else ((),) * len(_BLOB_COLUMNS)
        return Clause(statement, checkpoint | dict(zip(_BLOB_COLUMNS, map(list, columns), strict=True)))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store nothing: see the class."""

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the base class names it
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield stored checkpoints, newest first."""
        with translated():
            async with self._engine.connect() as connection:
                saver = AsyncPostgresSaver(await driver(connection), serde=self.serde)
                async for item in saver.alist(config, filter=filter, before=before, limit=limit):
                    yield item


def _has_next_node(checkpoint: Checkpoint) -> bool:
    """Whether a node comes next."""
    values = checkpoint["channel_values"]
    return bool(values.get(TASKS)) or any(name.startswith("branch:to:") for name in values)


def _split(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split values into those in the checkpoint's own row and those in rows of their own, as the stock saver does."""
    inline = {name: value for name, value in values.items() if value is None or isinstance(value, (str, int, float))}
    return inline, {name: value for name, value in values.items() if name not in inline}
