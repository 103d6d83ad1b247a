"""Binary parts of results: they are stored as artifacts, which the text of the result names."""

import asyncio
import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from mcp_gateway.path.stage import Stage
from starling.core.artifacts import ArtifactOrigin, ArtifactStore, NotStored
from starling.core.clock import Deadline
from starling.core.tools import CallRecord, ToolCall, ToolOutcome

_SECONDS: Final = 12.0  # for all of a result
_NOTE: Final = re.compile(r"artifact ([0-9a-f]{64})]")  # the end of what `content_text` returns for a binary part
_log = logging.getLogger(__name__)


def without(outcome: ToolOutcome, reasons: Mapping[str, str]) -> ToolOutcome:
    """Return an outcome without the binary parts whose ids have a reason, with the reasons in the notes on them."""
    if not reasons:
        return outcome
    text = _NOTE.sub(lambda note: f"not kept: {reasons[note[1]]}]" if note[1] in reasons else note[0], outcome.text)
    return replace(outcome, text=text, binaries=tuple(part for part in outcome.binaries if part.id not in reasons))


@dataclass(frozen=True, slots=True)
class BinaryArtifacts:
    """Stores the binary parts of results; the notes on those that can't be stored say why. The call has succeeded."""

    artifacts: ArtifactStore
    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        outcome = await self.inner(call, deadline, record)
        if not outcome.binaries:
            return outcome
        parts = {part.id: part for part in outcome.binaries}
        reasons = dict.fromkeys(parts, "no run would read it" if record is None else "there was no time for it")
        origin = ArtifactOrigin(call.tenant, call.run_id, call.id, call.tool.full_name)
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline.cap(_SECONDS)):
                for part in parts.values() if record is not None else ():
                    stored = await self.artifacts.put(origin, part.content, part.media_type)
                    reasons[part.id] = stored.reason if isinstance(stored, NotStored) else ""
        lost = {key: reason for key, reason in reasons.items() if reason}
        kept = [key for key in parts if key not in lost]
        if lost:
            _log.warning("of the result of call %s, binary parts aren't kept: %s", call.id, set(lost.values()))
        left = outcome.binaries if record is None else ()  # the caller sees that some were not kept
        return replace(without(outcome, lost), binaries=left, binary_artifacts=tuple(kept))
