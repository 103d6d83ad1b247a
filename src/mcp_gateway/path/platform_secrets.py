"""Secrets of the platform: calls whose arguments contain one are refused, and results are masked."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from mcp_gateway.path.binary_artifacts import without
from mcp_gateway.path.stage import Stage, not_sent
from mcp_gateway.registration.known_servers import Directory
from starling.core.artifacts import Binary
from starling.core.clock import Deadline
from starling.core.json import JsonObject, strings_in, with_strings
from starling.core.secrets.known import KnownSecrets
from starling.core.tools import CallRecord, ToolCall, ToolNotice, ToolOutcome


@dataclass(frozen=True, slots=True)
class SecretArguments:
    """Refuses calls whose arguments contain a known secret, also an encoded one, unless the tool's settings name it."""

    directory: Directory
    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        found = self.directory.secrets.names_in("\n".join(strings_in(call.arguments)))
        if found and (refused := sorted(found.difference(self.directory.tool_options(call).secrets))):
            text = f"The arguments contain a secret of the platform, which tools don't get: {', '.join(refused)}."
            return not_sent("secret_in_arguments", text)
        return await self.inner(call, deadline, record)


@dataclass(frozen=True, slots=True)
class SecretResults:
    """Masks known secrets in text, structured content and notices, also encoded ones; it comes before the size limit.

    A link to a resource whose address contains a secret can't be followed; a binary part that contains one isn't kept.
    """

    directory: Directory
    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        masked_call = call
        if call.on_notice is not None:
            masked_call = replace(call, on_notice=partial(_pass_masked, call.on_notice, self.directory.secrets))
        outcome = await self.inner(masked_call, deadline, record)
        secrets = self.directory.secrets  # servers may have been replaced meanwhile
        links = tuple(uri for uri in outcome.resources if not secrets.names_in(uri))
        outcome = outcome if links == outcome.resources else replace(outcome, resources=links)
        if outcome.binaries:
            telling = await asyncio.to_thread(_with_secrets, outcome.binaries, secrets)
            outcome = without(outcome, dict.fromkeys(telling, "it contains a secret of the platform"))
        [text] = await secrets.mask_all([outcome.text])
        if outcome.data is None:
            return outcome if text == outcome.text else replace(outcome, text=text)
        strings = list(strings_in(outcome.data))
        masked = await secrets.mask_all(strings)
        if (text, masked) == (outcome.text, strings):
            return outcome
        return replace(outcome, text=text, data=cast("JsonObject", with_strings(outcome.data, iter(masked))))


def _with_secrets(binaries: Sequence[Binary], secrets: KnownSecrets) -> list[str]:
    return [binary.id for binary in binaries if secrets.stand_in(binary.content)]


def _pass_masked(take: Callable[[ToolNotice], None], secrets: KnownSecrets, notice: ToolNotice) -> None:
    message, logger = secrets.mask_beginning(notice.message), secrets.mask_beginning(notice.logger)
    take(replace(notice, message=message, logger=logger))
