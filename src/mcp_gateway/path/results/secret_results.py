"""Secrets of the platform are taken out of results, and of what a server says meanwhile, before anyone sees them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from mcp_gateway.path.stage import Stage
from mcp_gateway.registration.known_servers import Directory
from starling.core.clock import Deadline
from starling.core.json import JsonObject
from starling.core.secrets.known import KnownSecrets, strings_in, with_strings
from starling.core.tools import CallRecord, ToolCall, ToolNotice, ToolOutcome


@dataclass(frozen=True, slots=True)
class SecretResults:
    """Replaces known secrets in text and structured content, also encoded ones; it comes before the size limit.

    A link to a resource whose address contains a secret can't be followed.
    """

    directory: Directory
    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        secrets = self.directory.secrets
        masked_call = call
        if call.on_notice is not None:
            masked_call = replace(call, on_notice=partial(_hand_on, call.on_notice, secrets))
        outcome = await self.inner(masked_call, deadline, record)
        secrets = self.directory.secrets  # servers may have been replaced meanwhile
        links = tuple(uri for uri in outcome.resources if not secrets.names_in(uri))
        outcome = outcome if links == outcome.resources else replace(outcome, resources=links)
        [text] = await secrets.mask_all([outcome.text])
        if outcome.data is None:
            return outcome if text == outcome.text else replace(outcome, text=text)
        strings = list(strings_in(outcome.data))
        masked = await secrets.mask_all(strings)
        if (text, masked) == (outcome.text, strings):
            return outcome
        return replace(outcome, text=text, data=cast("JsonObject", with_strings(outcome.data, iter(masked))))


def _hand_on(take: Callable[[ToolNotice], None], secrets: KnownSecrets, notice: ToolNotice) -> None:
    message, logger = secrets.mask_beginning(notice.message), secrets.mask_beginning(notice.logger)
    take(replace(notice, message=message, logger=logger))
