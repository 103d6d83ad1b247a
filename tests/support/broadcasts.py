"""Broadcasts of a process of its own, as a reader in another process has them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starling.infra.postgres.notifications import open_hub
from starling.infra.postgres.runs.broadcast import Broadcast


@asynccontextmanager
async def open_broadcast(url: str) -> AsyncGenerator[Broadcast]:
    """Yield a broadcast with its own notification hub."""
    async with open_hub(url) as hub:
        broadcast = Broadcast(hub)
        with broadcast.subscribed(hub):
            yield broadcast
