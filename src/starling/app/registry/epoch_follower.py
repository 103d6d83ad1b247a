"""Follows the registry: applies changes that other processes made."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from brain.registry.repository import CHANNEL, EpochRepository
from brain.registry.service import Registry
from mcp_gateway.gateway import Gateway
from starling.core.background_tasks import in_background
from starling.core.clock import Clock
from starling.core.errors import DatabaseUnavailableError
from starling.core.runs import RunResult
from starling.infra.postgres.notifications import NotificationHub
from starling.infra.postgres.runs.acceptance import Claim

_LOOK_SECONDS = 10.0  # for a notice that was missed, and for epochs that no run holds any more

type _Execute = Callable[[Claim], Awaitable[RunResult | None]]


class EpochFollower:
    """Applies new epochs to the gateway and drops closed ones from the registry.

    `epoch` is the epoch that the gateway has applied, `since` the Unix time when it did.
    """

    def __init__(self, gateway: Gateway, registry: Registry, epochs: EpochRepository, epoch: int, clock: Clock) -> None:
        self.epoch = epoch
        self.since = clock.now().timestamp()
        self._clock = clock
        self._gateway = gateway
        self._registry = registry
        self._epochs = epochs
        self._turn = asyncio.Lock()

    def before(self, execute: _Execute) -> _Execute:
        """Wrap `execute` so that it waits for the run's epoch: a notice may arrive after the job."""

        async def fresh(claim: Claim) -> RunResult | None:
            await self.reach(claim.run.epoch)
            return await execute(claim)

        return fresh

    async def reach(self, epoch: int) -> None:
        """Read the registry again if `epoch` is newer than the applied one. Raises DatabaseUnavailableError."""
        async with self._turn:
            if epoch > self.epoch:
                await self._refresh()

    async def tidy(self) -> None:
        """Close the epochs that no run holds any more, and drop their rosters."""
        self._registry.keep_only(await self._epochs.close_unheld())

    @asynccontextmanager
    async def listening(self, hub: NotificationHub) -> AsyncGenerator[None]:
        """Follow the registry for as long as the context lasts."""
        async with in_background(self._listen(hub), "follow-registry"):
            yield

    async def _listen(self, hub: NotificationHub) -> None:
        async for rung in hub.notices(CHANNEL, at_least_every=_LOOK_SECONDS):
            with suppress(DatabaseUnavailableError):
                async with self._turn:
                    if rung or await self._epochs.active_number() != self.epoch:
                        await self._refresh()
                    await self.tidy()

    async def _refresh(self) -> None:
        number = await self._epochs.active_number()
        await self._gateway.refresh()
        if number != self.epoch:
            self.epoch, self.since = number or 0, self._clock.now().timestamp()
