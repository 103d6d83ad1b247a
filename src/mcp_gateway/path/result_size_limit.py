"""Cuts results that are too long for a model, with a note on where the whole is."""

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import Final

from mcp_gateway.path.stage import Stage
from mcp_gateway.sessions.large_message_parser import repeats
from starling.core.artifacts import READ_ARTIFACT, ArtifactOrigin, ArtifactStore, NotStored
from starling.core.clock import Deadline
from starling.core.fit import fit_in_thread
from starling.core.json import JsonObject, canonical
from starling.core.tools import CallRecord, ToolCall, ToolOutcome

_KEEP_SECONDS: Final = 12.0
_NOTE_CHARS: Final = 400  # of the longest note

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Whole:
    """The whole content of a result as one text that begins like the result's; or only its structured content."""

    text: str
    media_type: str = "text/plain"
    only_data: bool = False


@dataclass(frozen=True, slots=True)
class SizeLimit:
    """Bounds text and structured content to `characters` each, and keeps the whole of what was longer as an artifact.

    What is shown is fitted to the text that the call is `wanted` for. Without one, text is cut and structured content
    left out. If the whole can't be stored, the result notes that it is lost. A fixture that was cut before stays so.
    """

    characters: int
    artifacts: ArtifactStore
    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        outcome = await self.inner(call, deadline, record)
        data = "" if outcome.data is None else canonical(outcome.data)
        if outcome.truncated or max(len(data), len(outcome.text)) <= self.characters:
            return outcome
        bounded = outcome if len(data) <= self.characters else replace(outcome, data=None, truncated=True)
        whole = self._whole(outcome.text, outcome.data, data if bounded.data is None else "")
        if whole is None:
            return bounded
        kept = NotStored("no run would read it") if record is None else await self._kept(call, whole, deadline)
        if isinstance(kept, NotStored):
            _log.warning("of the result of call %s only the beginning is kept: %s", call.id, kept.reason)
        text = await self._shortened(outcome.text, whole, kept, call.wanted)
        artifact = kept if isinstance(kept, str) else ""
        return replace(bounded, text=text, truncated=True, artifact=artifact, characters=len(whole.text))

    def _whole(self, text: str, data: JsonObject | None, left_out: str) -> _Whole | None:
        """Return what is to be stored; None if the text fits and repeats all structured content."""
        media_type = ""
        if data is not None and repeats(text, data):
            media_type = "text/plain" if list(data.values()) == [text] else "application/json"
        if media_type or not left_out:
            return _Whole(text, media_type or "text/plain") if len(text) > self.characters else None
        if len(text) + _NOTE_CHARS <= self.characters:
            return _Whole(left_out, "application/json", only_data=True)
        return _Whole(f"{text}\n\n{left_out}")

    async def _kept(self, call: ToolCall, whole: _Whole, deadline: Deadline) -> str | NotStored:
        """Keep the whole for its run, but not for long: the result itself is at hand."""
        origin = ArtifactOrigin(call.tenant, call.run_id, call.id, call.tool.full_name)
        try:
            async with asyncio.timeout(deadline.cap(_KEEP_SECONDS)):
                return await self.artifacts.put(origin, whole.text.encode(), whole.media_type)
        except TimeoutError:
            return NotStored("there was no time for it")

    async def _shortened(self, text: str, whole: _Whole, kept: str | NotStored, wanted: str) -> str:
        size = f"{len(whole.text):,} characters"
        if wanted:  # the text is a part of the whole, or stands above it
            above = f"{text}\n\n".lstrip() if whole.only_data else ""
            note = f"\n[parts are left out: the whole result has {size}{_where(kept, 'the offset of a gap')}]"
            return above + await fit_in_thread(whole.text, self.characters - len(above + note), wanted) + note
        if whole.only_data:
            return f"{text}\n[left out: structured content of {size}{_where(kept, 'offset 0')}]".lstrip()
        longest = f"\n[cut off: the whole result has {size}{_where(kept, f'offset {len(whole.text)}')}]"
        end = max(0, self.characters - len(longest))
        return f"{text[:end]}\n[cut off: the whole result has {size}{_where(kept, f'offset {end}')}]"


def _where(kept: str | NotStored, begin: str) -> str:
    if isinstance(kept, NotStored):
        return f"; the rest wasn't kept: {kept.reason}"
    return f"; it is artifact {kept}, and {READ_ARTIFACT} reads on from {begin}"
