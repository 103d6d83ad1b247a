"""What is too long for a model is cut, and says so."""

from dataclasses import dataclass, replace

from mcp_gateway.path.step import Step
from starling.core.clock import Deadline
from starling.core.json import canonical
from starling.core.tools import ToolCall, ToolOutcome


@dataclass(frozen=True, slots=True)
class SizeLimit:
    """Bounds text and structured content to `characters` each. Structured content isn't cut but left out."""

    characters: int
    inner: Step

    async def __call__(self, call: ToolCall, deadline: Deadline) -> ToolOutcome:
        outcome = await self.inner(call, deadline)
        data = outcome.data
        if data is not None and len(canonical(data)) > self.characters:
            data = None
        text = outcome.text if len(outcome.text) <= self.characters else self._cut(outcome.text)
        if text is outcome.text and data is outcome.data:
            return outcome
        return replace(outcome, text=text, data=data, truncated=True)

    def _cut(self, text: str) -> str:
        note = f"\n[cut off: the whole result has {len(text):,} characters]"
        return text[: self.characters - len(note)] + note
