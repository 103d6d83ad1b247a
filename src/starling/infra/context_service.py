"""Client of the context service, an external service that receives audit events."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
from pydantic import SecretStr
from yarl import URL

from starling.core.settings.schema import Settings
from starling.core.validation_errors import http_address
from starling.infra.postgres.audit import AuditEvent
from starling.infra.tracing.destination import destination_of
from starling.infra.tracing.spans import run_headers

_SECONDS: Final = 5.0
_PERMANENT_REFUSALS: Final = (400, 413, 422)
_log = logging.getLogger(__name__)


class ContextService:
    """Sends audit events to `<url>/events`. Delivery is at least once; `Idempotency-Key` identifies repetitions."""

    def __init__(self, url: str, session: aiohttp.ClientSession, *, traced: bool) -> None:
        self._url = URL(http_address("CONTEXT_SERVICE_URL", url, "http://localhost:8001")) / "events"
        self._session, self._traced = session, traced

    async def deliver(self, event: AuditEvent) -> str:
        """Send an event. Return the reason of a failure that can be retried, else an empty string."""
        headers = {"Idempotency-Key": event.id}
        if self._traced and "run_id" in event.payload:
            headers |= run_headers(str(event.payload["trace_id"]), str(event.payload["run_id"]))
        limit = aiohttp.ClientTimeout(total=_SECONDS)
        try:
            async with self._session.post(self._url, json=event.document(), headers=headers, timeout=limit) as response:
                if response.status in _PERMANENT_REFUSALS:
                    _log.warning("the context service refused audit event %s with HTTP %d", event.id, response.status)
                    return ""
                return "" if 200 <= response.status < 300 else f"it answered with HTTP {response.status}"
        except TimeoutError:
            return f"it did not answer within {_SECONDS:g} s"
        except aiohttp.ClientError as error:
            return f"it can't be reached ({type(error).__name__})"


def bearer(token: SecretStr | None) -> dict[str, str]:
    """Return the headers that carry a token, if there is one."""
    return {"Authorization": f"Bearer {token.get_secret_value()}"} if token else {}


@asynccontextmanager
async def open_context_service(settings: Settings) -> AsyncGenerator[ContextService | None]:
    """Yield the service, with HTTP connections of its own; None where none is set. Raises ConfigurationError."""
    if settings.context_service_url is None:
        yield None
        return
    traced = destination_of(settings) is not None
    async with aiohttp.ClientSession(headers=bearer(settings.context_service_token)) as session:
        yield ContextService(settings.context_service_url, session, traced=traced)
