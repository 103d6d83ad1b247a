"""A queue with a hub of its own."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starling.infra.postgres.notifications import open_hub
from starling.infra.queue.run_queue import RunQueue


@asynccontextmanager
async def open_queue(url: str) -> AsyncGenerator[RunQueue]:
    async with open_hub(url) as hub:
        yield RunQueue(url, hub)
