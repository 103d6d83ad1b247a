"""Prompts, and the port of the sources that their texts come from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol

PROMPT_NAMES: Final = (
    "supervisor", "specialist", "generalist", "coder", "custom", "custom_tools", "crewai", "reflection",
    "reviewer", "qa", "judge", "designer",
)  # fmt: skip
LONGEST_PROMPT: Final = 50_000  # characters


@dataclass(frozen=True, slots=True)
class OfferedPrompt:
    """The text that a source has for a prompt: instructions, a line `---` and the data part, or instructions alone.

    From Langfuse it has a `version`, the `label` that it was found by, and the `remote_name` that it has there.
    """

    text: str
    source: Literal["langfuse", "local"] = "local"
    version: int | None = None
    label: str | None = None
    remote_name: str = ""


@dataclass(frozen=True, slots=True)
class RefusedPrompt:
    """What a source has for a prompt can't be used, and why."""

    reason: str


type Offers = Mapping[str, OfferedPrompt | RefusedPrompt]
"""What a source has, by name of prompt. What it hasn't is left out."""


class PromptSource(Protocol):
    """Where texts of prompts come from."""

    async def offers(self) -> Offers:
        """Return what the source has now. Raises PromptSourceUnavailableError."""
        ...
