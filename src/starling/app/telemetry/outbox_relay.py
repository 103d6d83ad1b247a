"""Sends audit events from the outbox to the context service, in the background; the service may be down."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from starling.core.background_tasks import in_background
from starling.core.errors import DatabaseUnavailableError
from starling.core.outages import Outage
from starling.core.settings.schema import Settings
from starling.infra.context_service import ContextService, open_context_service
from starling.infra.postgres.audit import Outbox
from starling.infra.postgres.engine import Engine

_AT_ONCE = 20
_LEASE_SECONDS = 120.0  # more than a batch can take
_LOOK_SECONDS = 0.5
_LONGEST_SECONDS = 30.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OutboxRelay:
    """Delivers the outbox in order; after a failure it tries again with growing pauses."""

    outbox: Outbox
    service: ContextService

    async def deliver_forever(self) -> None:
        """Deliver until cancelled."""
        pause = _LOOK_SECONDS
        outage = Outage(
            _log, "audit events aren't delivered to the context service", "audit events are delivered again"
        )
        while True:
            if failure := await self._deliver():
                outage.failed(failure)
            else:
                outage.recovered()
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_SECONDS) if failure else _LOOK_SECONDS

    async def _deliver(self) -> str:
        """Deliver all that is due, up to the first failure; return that one."""
        with suppress(DatabaseUnavailableError):
            while events := await self.outbox.take(_AT_ONCE, lease_seconds=_LEASE_SECONDS):
                delivered, failure = 0, ""
                while delivered < len(events) and not (failure := await self.service.deliver(events[delivered])):
                    delivered += 1
                await self.outbox.settle(events[:delivered], events[delivered:])
                if failure:
                    return failure
        return ""


@asynccontextmanager
async def relay_outbox(settings: Settings, engine: Engine) -> AsyncGenerator[None]:
    """Deliver for as long as the context lasts; do nothing without a context service. Raises ConfigurationError."""
    async with open_context_service(settings) as service:
        if service is None:
            yield
            return
        delivery = OutboxRelay(Outbox(engine), service)
        async with in_background(delivery.deliver_forever(), "deliver-audit-events"):
            yield
