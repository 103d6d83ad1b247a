"""The parts of a worker process, for tests that look into it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from brain.execution.run_executor import Brain
from mcp_gateway.connections import connect
from mcp_gateway.gateway import Gateway
from starling.app.container.execution import open_execution
from starling.app.container.servers import open_servers
from starling.app.registry.epoch_follower import EpochFollower
from starling.app.services import Services
from starling.app.worker.worker import Worker
from starling.core.background_tasks import in_background
from starling.core.settings.schema import Settings
from starling.core.tools import Halts, ServerListing


@dataclass(frozen=True, slots=True)
class WorkerRuntime:
    gateway: Gateway
    halts: Halts
    epoch_follower: EpochFollower
    brain: Brain
    worker: Worker
    listings: tuple[ServerListing, ...]
    epoch: int


@asynccontextmanager
async def open_worker_runtime(settings: Settings, services: Services) -> AsyncGenerator[WorkerRuntime]:
    """Open all of a worker process; it does not work yet."""
    async with open_servers(settings, services.storage, connect) as servers:
        epoch = servers.epoch_follower.epoch
        await servers.gateway.connections()
        async with open_execution(settings, services, servers) as execution:
            yield WorkerRuntime(
                servers.gateway,
                servers.halts,
                servers.epoch_follower,
                execution.brain,
                execution.worker,
                servers.listings,
                epoch,
            )


@asynccontextmanager
async def running_worker(worker: Worker) -> AsyncGenerator[asyncio.Task[None]]:
    """Run the worker in the background while the context lasts; its task ends earlier if drained, or with an error."""
    async with in_background(worker.work(), "worker", 10.0) as task:
        yield task
