"""LangGraph's checkpoints, written by the run's own writer and so under its fence."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
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

from starling.infra.postgres.engine import Engine, driver, reading
from starling.infra.postgres.runs.writer import Clause, RunWriter

# The stock saver's statements, with all rows at once.
_STORE = """
blobs AS (
    INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)
    SELECT %(thread)s, item.namespace, item.channel, item.version, item.type, decode(item.blob, 'base64')
    FROM fenced, jsonb_to_recordset(%(blobs)s)
    AS item (namespace text, channel text, version text, type text, blob text)
    ON CONFLICT DO NOTHING),
newest AS MATERIALIZED (
    SELECT item.* FROM fenced, jsonb_to_recordset(%(checkpoints)s)
    AS item (namespace text, id text, parent text, checkpoint jsonb, metadata jsonb)),
checkpointed AS (
    INSERT INTO checkpoints (checkpoint_ns, thread_id, checkpoint_id, parent_checkpoint_id, checkpoint, metadata)
    SELECT namespace, %(thread)s, id, parent, checkpoint, metadata FROM newest
    ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id)
    DO UPDATE SET checkpoint = EXCLUDED.checkpoint, metadata = EXCLUDED.metadata)"""
# A star continues from its newest checkpoint only. These two don't see rows that the same statement inserts.
_SUPERSEDE = """,
superseded_blobs AS (
    DELETE FROM checkpoint_blobs AS old USING newest
    WHERE old.thread_id = %(thread)s AND old.checkpoint_ns = newest.namespace
    AND old.version IS DISTINCT FROM newest.checkpoint -> 'channel_versions' ->> old.channel),
superseded AS (
    DELETE FROM checkpoints AS old USING newest
    WHERE old.thread_id = %(thread)s AND old.checkpoint_ns = newest.namespace AND old.checkpoint_id <> newest.id)"""


@dataclass(slots=True)
class _Unwritten:
    """What the next batch stores of one star: the newest checkpoint's row, and the newest value of each channel.

    Values are serialised only when they are stored: most are replaced before that.
    """

    row: Mapping[str, Any] = field(default_factory=dict[str, Any])
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    versions: ChannelVersions = field(default_factory=dict[str, str | int | float])


class RunCheckpoints:
    """The checkpoints of a run's stars: of the main one, and of each call of a team, by its path.

    The rows of a team's star have the run's thread and the path as their namespace, and so are deleted with the run's.
    """

    def __init__(self, engine: Engine, writer: RunWriter) -> None:
        self.engine = engine
        self.writer = writer
        # without a list of allowed types a crafted row could run code when it is read
        self.serde = JsonPlusSerializer(allowed_msgpack_modules=None)
        self._unwritten: dict[str, _Unwritten] = {}
        self._stored: set[str] = set()  # namespaces with an earlier checkpoint, which has to be deleted

    def saver(self, path: str = "") -> "FencedSaver":
        """Return the saver of one star; without a path, that of the main one."""
        return FencedSaver(self, path)

    def add(self, namespace: str, row: Mapping[str, Any], values: Mapping[str, Any], versions: ChannelVersions) -> None:
        """Store a star's newest checkpoint with the next batch."""
        if not self._unwritten:
            self.writer.add(self._clause, until_end=True)
        unwritten = self._unwritten.setdefault(namespace, _Unwritten())
        unwritten.row = row
        unwritten.values |= values
        unwritten.versions |= versions

    def _clause(self) -> Clause:
        taken, self._unwritten = self._unwritten, {}
        is_first = self.writer.run.fence == 1 and self._stored.isdisjoint(taken)
        self._stored |= taken.keys()
        blobs: list[Mapping[str, Any]] = []
        for namespace, unwritten in taken.items():
            for channel, version in unwritten.versions.items():
                place = {"namespace": namespace, "channel": channel, "version": version}
                kind, data = self.serde.dumps_typed(unwritten.values[channel])
                blobs.append({**place, "type": kind, "blob": b64encode(data).decode()})
        values = {
            "thread": self.writer.run.id,
            "checkpoints": Jsonb([unwritten.row for unwritten in taken.values()]),
            "blobs": Jsonb(blobs),
        }
        return Clause(_STORE if is_first else _STORE + _SUPERSEDE, values)


class FencedSaver(BasePostgresSaver):
    """The stock saver's tables and formats on the writer's connection; the checkpoint's thread is the run.

    A node's writes between two checkpoints aren't stored: the journal makes it free to run the node again.
    """

    def __init__(self, checkpoints: RunCheckpoints, namespace: str) -> None:
        super().__init__(serde=checkpoints.serde)
        self._checkpoints = checkpoints
        self._namespace = namespace

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the newest checkpoint; a run in its first execution has none, which needs no query."""
        del config
        return None if self._checkpoints.writer.run.fence == 1 else await self.stored()

    async def stored(self) -> CheckpointTuple | None:
        """Return the newest checkpoint, of any execution."""
        place = {"thread_id": self._checkpoints.writer.run.id, "checkpoint_ns": self._namespace}
        async with reading(self._checkpoints.engine) as connection:
            saver = AsyncPostgresSaver(await driver(connection), serde=self.serde)
            found = await saver.aget_tuple({"configurable": place})
        return found and found._replace(
            config={**found.config, "configurable": {**found.config.get("configurable", {}), "checkpoint_ns": ""}}
        )

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint together with the events and records before it, and wait until they are durable.

        If nothing else is pending, the node had no effects and can run again: its checkpoint is written with the next
        batch. Those before the first node and after the last one aren't waited for either: nothing needs them.
        """
        place = config.get("configurable", {})
        values = checkpoint["channel_values"]  # split as the stock saver does: simple ones are in the checkpoint's row
        inline = {name: item for name, item in values.items() if item is None or isinstance(item, (str, int, float))}
        apart = values.keys() - inline.keys()
        versions = {channel: version for channel, version in new_versions.items() if channel in apart}
        row = {
            "namespace": self._namespace,
            "id": checkpoint["id"],
            "parent": place.get("checkpoint_id"),
            "checkpoint": {**checkpoint, "channel_values": inline},
            "metadata": get_serializable_checkpoint_metadata(config, metadata),
        }
        self._checkpoints.add(self._namespace, row, {channel: values[channel] for channel in versions}, versions)
        has_next_node = bool(values.get(TASKS)) or any(name.startswith("branch:to:") for name in values)
        if metadata.get("step", 0) > 0 and has_next_node and self._checkpoints.writer.has_pending_records:
            await self._checkpoints.writer.flush()
        stored = {"thread_id": place["thread_id"], "checkpoint_ns": "", "checkpoint_id": checkpoint["id"]}
        return {"configurable": stored}

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store nothing: see the class."""
