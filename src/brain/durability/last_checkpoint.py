"""The last checkpoint of a run, read by LangGraph's saver, which is imported when it is first used."""

from typing import TYPE_CHECKING

from starling.infra.postgres.engine import Engine
from starling.infra.postgres.runs.writer import RunWriter

if TYPE_CHECKING:
    from langgraph.checkpoint.base import CheckpointTuple


async def last_checkpoint(engine: Engine, writer: RunWriter) -> "CheckpointTuple | None":
    """Return the last checkpoint of the writer's run, None if it has none."""
    from brain.durability.checkpointer import FencedSaver  # noqa: PLC0415 - deferred

    place = {"thread_id": writer.run.id, "checkpoint_ns": ""}
    return await FencedSaver(engine, writer).stored({"configurable": place})
