"""Client of the brainstem, an external service that narrows what single requests are allowed."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import aiohttp
from pydantic import ValidationError
from yarl import URL

from starling.core.governance import GovernanceDecision, GovernanceRow, TableGovernance
from starling.core.json import JsonObject, RepeatedNameError, without_repeated_names
from starling.core.runs import Channel, Mode
from starling.core.settings.schema import Settings
from starling.core.validation_errors import fault_list, http_address
from starling.infra.context_service import bearer
from starling.infra.tracing.spans import trace_headers

_SECONDS: Final = 3.0
_MOST_BYTES: Final = 65_536


class _NoAnswerError(Exception):
    """The service gave no valid answer; the message says why."""


class Brainstem:
    """Asks for the bounds of single requests at `<url>/evaluate`."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = URL(http_address("BRAINSTEM_URL", url, "http://localhost:8003")) / "evaluate"
        self._session = session

    async def row(self, request: JsonObject) -> GovernanceRow:
        """Return the row that the service answers with. Raises _NoAnswerError."""
        limit, headers = aiohttp.ClientTimeout(total=_SECONDS), trace_headers()
        try:
            asked = self._session.post(self._url, json=request, headers=headers, timeout=limit, allow_redirects=False)
            async with asked as response:
                if response.status != 200:
                    raise _NoAnswerError(f"it answered with HTTP {response.status}")
                text = b""
                async for piece in response.content.iter_any():
                    text += piece
                    if len(text) > _MOST_BYTES:
                        raise _NoAnswerError(f"its answer is longer than {_MOST_BYTES:,} bytes")
                row = GovernanceRow.model_validate_json(text)
                json.loads(text, object_pairs_hook=without_repeated_names)
                return row
        except TimeoutError:
            raise _NoAnswerError(f"it did not answer within {_SECONDS:g} s") from None
        except aiohttp.ClientError as error:
            raise _NoAnswerError(f"it can't be reached ({type(error).__name__})") from None
        except ValidationError as error:
            raise _NoAnswerError(f"its answer is invalid: {fault_list(error.errors())}") from None
        except RepeatedNameError as error:
            raise _NoAnswerError(f"its answer is invalid: {error}") from None


@dataclass(frozen=True, slots=True)
class ServiceGovernance:
    """Decides by the table and, within it, by the answer of the service; without one by the row of CONSERVATIVE."""

    table: TableGovernance
    service: Brainstem

    async def evaluate_request(
        self, session_id: str, channel: Channel, mode: Mode, user_message: str
    ) -> GovernanceDecision:
        rows, tenant = self.table.table, self.table.tenant
        whole = rows.row(mode, channel, tenant)
        request = {
            "session_id": session_id,
            "channel": channel.value,
            "mode": mode.value,
            "user_message": user_message,
            "tenant": tenant,
        }
        try:
            answer = await self.service.row(request)
            if answer.direct_agent:  # it may leave the request to the supervisor, but name no other agent
                answer = answer.model_copy(update={"direct_agent": None})
            row = whole.narrowed(answer)
            if row.roles == ():
                raise _NoAnswerError("it allows no role that the table does")
            return GovernanceDecision(source="service", row=row)
        except _NoAnswerError as error:
            cautious = rows.row(Mode.CONSERVATIVE, channel, tenant)
            row = whole.narrowed(cautious)
            said = f"The bounds of mode CONSERVATIVE hold, because the brainstem gave no valid answer: {error}."
            if row.roles == ():  # the two rows have no role in common
                row = row.model_copy(update={"roles": cautious.roles, "default_role": cautious.default_role})
            return GovernanceDecision(source="fallback", row=row, warning=said)


@asynccontextmanager
async def open_brainstem(settings: Settings) -> AsyncGenerator[Brainstem | None]:
    """Yield the service, with HTTP connections of its own; None where none is set. Raises ConfigurationError."""
    if settings.brainstem_url is None:
        yield None
        return
    async with aiohttp.ClientSession(headers=bearer(settings.brainstem_token)) as session:
        yield Brainstem(settings.brainstem_url, session)
