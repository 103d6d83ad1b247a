"""Waiting for the end of a run, or until it needs an answer."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from starling.core.events.stream import StoredEvent
from starling.core.runs import RunStatus
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.documents import RunDocumentRepository

_ASKS: Final = frozenset({"approval_required", "clarification", "budget_required", "in_doubt"})
_POLL_SECONDS = 0.1


async def ended(runs: RunDocumentRepository, key: RunKey, events: AsyncGenerator[Sequence[StoredEvent]]) -> bool:
    """Read a stream until the run ends or waits for an answer; return whether it ended."""
    last = ""
    async for batch in until_idle(runs, key, events):
        last = batch[-1].type
    return last == "done" or (await runs.row(key)).status.terminal


async def until_idle(
    runs: RunDocumentRepository, key: RunKey, events: AsyncGenerator[Sequence[StoredEvent]]
) -> AsyncGenerator[Sequence[StoredEvent]]:
    """Yield the batches of a stream until the run ends or waits for an answer.

    After a question the status is polled: no event says that a run waits, as other tasks may continue.
    """
    reading: asyncio.Task[Sequence[StoredEvent] | None] | None = None
    try:
        async for batch in events:
            yield batch
            if any(event.type in _ASKS for event in batch):
                break
        while True:
            reading = reading or asyncio.get_running_loop().create_task(_next(events), name=f"read-{key.id}")
            await asyncio.wait([reading], timeout=_POLL_SECONDS)
            if not reading.done():
                if (await runs.row(key)).status is RunStatus.WAITING:
                    return
            elif batch := reading.result():
                yield batch
                reading = None
            else:
                return
    finally:
        if reading:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        await events.aclose()


async def _next(events: AsyncGenerator[Sequence[StoredEvent]]) -> Sequence[StoredEvent] | None:
    return await anext(events, None)
