"""LangGraph's checkpoints, written by the run's own writer and so under its fence."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.postgres.base import BasePostgresSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from starling.infra.postgres.engine import Engine, driver, translated
from starling.infra.postgres.runs import Connection
from starling.infra.postgres.writer import RunWriter

_DELETE = (
    "DELETE FROM checkpoints WHERE thread_id = %s",
    "DELETE FROM checkpoint_blobs WHERE thread_id = %s",
    "DELETE FROM checkpoint_writes WHERE thread_id = %s",
)
_INPUT = "input"


class FencedSaver(BasePostgresSaver):
    """The stock Postgres saver on the writer's connection; the checkpoint's thread is the run.

    A node's writes between two checkpoints aren't stored: the journal makes it free to run the node again.
    """

    def __init__(self, engine: Engine, writer: RunWriter) -> None:
        # without a list of allowed types a crafted row could run code when it is read
        super().__init__(serde=JsonPlusSerializer(allowed_msgpack_modules=None))
        self._engine = engine
        self._writer = writer

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the newest checkpoint; a run in its first life has none, and isn't looked up."""
        return None if self._writer.run.fence == 1 else await self.stored(config)

    async def stored(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the newest checkpoint, from whichever life."""
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
        """Store a checkpoint with everything that was collected before it, and wait until it is durable.

        That of the bare input goes with the next one: the run row holds the input already.
        """

        async def write(connection: Connection) -> None:
            saver = AsyncPostgresSaver(connection, serde=self.serde)
            await saver.aput(config, checkpoint, metadata, new_versions)

        self._writer.add(write)
        if metadata.get("source") != _INPUT:
            await self._writer.flush()
        configurable = config.get("configurable", {})
        return {
            "configurable": {
                "thread_id": configurable["thread_id"],
                "checkpoint_ns": configurable.get("checkpoint_ns", ""),
                "checkpoint_id": checkpoint["id"],
            }
        }

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


async def delete_checkpoints(connection: Connection, run_id: str) -> None:
    """Delete what an ended run has no more use for. Part of the transaction that ends it."""
    for statement in _DELETE:
        await connection.execute(statement, (run_id,))
