"""Runs of a new epoch, executed with a gateway that knows that epoch's servers."""

import asyncio

from mcp_gateway.gateway import Gateway
from starling.app.worker import Execute
from starling.infra.postgres.runs import Claim


class Fresh:
    """Has the gateway look at the database again before the first run of an epoch that it doesn't know.

    Another process published it: one that added or removed servers.
    """

    def __init__(self, gateway: Gateway, epoch: int, execute: Execute) -> None:
        self._gateway = gateway
        self._epoch = epoch
        self._execute = execute
        self._turn = asyncio.Lock()

    async def __call__(self, claim: Claim) -> None:
        """Execute the run. Raises what `execute` raises, and DatabaseUnavailableError."""
        async with self._turn:
            if claim.run.epoch > self._epoch:
                await self._gateway.refresh()
                self._epoch = claim.run.epoch
        await self._execute(claim)
