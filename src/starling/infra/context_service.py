"""The context service: whoever keeps an audit trail outside of us."""

import logging
from typing import Final

import aiohttp
from yarl import URL

from starling.core.errors import ConfigurationError
from starling.infra.postgres.outbox import AuditEvent

_SECONDS: Final = 5.0
_NEVER_WILL: Final = (400, 413, 422)  # what was refused so once is refused always
_log = logging.getLogger(__name__)


class ContextService:
    """Takes audit events at `<url>/events`. Delivery is at least once; `Idempotency-Key` tells repetitions."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = _checked(url) / "events"
        self._session = session

    async def tell(self, event: AuditEvent) -> str:
        """Deliver an event. Returns why that failed; nothing where it didn't, or where it is no use to try again."""
        headers = {"Idempotency-Key": event.id}
        limit = aiohttp.ClientTimeout(total=_SECONDS)
        try:
            async with self._session.post(self._url, json=event.document(), headers=headers, timeout=limit) as response:
                return _failure(response.status, event)
        except TimeoutError:
            return f"it didn't answer within {_SECONDS:g} s"
        except aiohttp.ClientError as error:
            return f"it can't be reached ({type(error).__name__})"


def _failure(status: int, event: AuditEvent) -> str:
    if status in _NEVER_WILL:
        _log.warning("the context service refused audit event %s with HTTP %d", event.id, status)
        return ""
    return "" if 200 <= status < 300 else f"it answered with HTTP {status}"


def _checked(url: str) -> URL:
    try:
        parsed = URL(url)
    except ValueError:
        parsed = URL()
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ConfigurationError(
            "CONTEXT_SERVICE_URL is not an http(s) address.", "Write for example http://localhost:8001."
        )
    return parsed
