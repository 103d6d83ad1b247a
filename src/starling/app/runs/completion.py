"""Waiting for the end of a run, or until it needs an answer."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from starling.core.run_document.rows import EventRow
from starling.core.runs import RunStatus
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.documents import RunDocumentRepository

_ASKS: Final = frozenset({"approval_required", "clarification", "budget_required", "in_doubt"})
_POLL_SECONDS = 0.1


async def ended(runs: RunDocumentRepository, key: RunKey, events: AsyncGenerator[Sequence[EventRow]]) -> bool:
    """Read a stream until the run ends or waits for an answer; return whether it ended."""
    last = ""
    async for batch in until_idle(runs, key, events):
        last = batch[-1].type
    return last == "done" or (await runs.row(key)).status.terminal


async def until_idle(
    runs: RunDocumentRepository, key: RunKey, events: AsyncGenerator[Sequence[EventRow]], *, asked: bool = False
) -> AsyncGenerator[Sequence[EventRow]]:
    """Yield the batches of a stream until the run ends or waits for an answer.

    After a question the status is polled: no event says that a run waits, as other tasks may continue. `asked`: the
    question may be before the stream.
    """
    reading: asyncio.Task[Sequence[EventRow] | None] | None = None
    try:
        while True:
            reading = reading or asyncio.get_running_loop().create_task(_next(events), name=f"read-{key.id}")
            await asyncio.wait([reading], timeout=_POLL_SECONDS if asked else None)
            if not reading.done():
                if (await runs.row(key)).status is RunStatus.WAITING:
                    return
            elif batch := reading.result():
                yield batch
                reading, asked = None, asked or any(event.type in _ASKS for event in batch)
            else:
                return
    finally:
        if reading:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        await events.aclose()


async def _next(events: AsyncGenerator[Sequence[EventRow]]) -> Sequence[EventRow] | None:
    return await anext(events, None)
