"""What a server listed: its description of itself and its tools, with their pins."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from mcp_gateway.configuration.options import ServerOptions
from starling.core.json import JsonObject, digest, storable
from starling.core.tool_calls import Effect

_SHOWN: Final = 10
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s|\n\n")
_DESCRIPTION_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class Listed:
    """A server's description of itself, and its usable tools: name to whole definition.

    `left_out` names the unusable tools with the reasons. A server without a description has its `title` only.
    """

    description: str
    tools: Mapping[str, JsonObject]
    left_out: tuple[str, ...] = ()
    title: str = ""

    def described(self, in_use: Collection[str]) -> str:
        """Return the description, else the title and what the tools `in_use` say: agents read it."""
        tools = {name: definition for name, definition in self.tools.items() if name in in_use}
        text = self.description or described_by_tools(self.title, tools)
        text = text if len(text) <= _DESCRIPTION_CHARS else text[:_DESCRIPTION_CHARS].rsplit(" ", 1)[0] + " …"
        return str(storable(text))

    def faults(self, options: ServerOptions) -> list[tuple[str, str]]:
        """Return the faults of a server that can be used all the same, each with what to do about it."""
        found: list[tuple[str, str]] = []
        if self.left_out:
            found.append((f"Left out: {'; '.join(self.left_out)}.", "Report it to the server's author."))
        if misnamed := sorted(options.named_tools - self.tools.keys()):
            said = f"Its configuration names tools that it doesn't have: {', '.join(misnamed)}."
            found.append((said, "Correct the names under `x-starling`: their settings apply to no tool."))
        if doubted := sorted(name for name, one in self.tools.items() if _contradicts(one, options.effect_of(name))):
            more = f" and {len(doubted) - _SHOWN} more" if len(doubted) > _SHOWN else ""
            few = f"{', '.join(doubted[:_SHOWN])}{more}"
            said = f"It says itself that these tools may change something, the configuration says `read`: {few}."
            found.append(
                (said, "Look at what they do; `x-starling.tools` gives a tool the effect `unsafe` or `idempotent`.")
            )
        return found


def described_by_tools(title: str, tools: Mapping[str, JsonObject]) -> str:
    """Return the title and the first sentence of each tool's description, or its name in words."""
    said = (str(definition.get("description") or "").strip() for definition in tools.values())
    sentences = [
        " ".join(_SENTENCE.split(text, maxsplit=1)[0].split()).rstrip(".")
        or " ".join(name.replace("-", "_").split("_"))
        for name, text in zip(tools, said, strict=True)
    ]
    return f"{title}: {'; '.join(sentences)}" if sentences else title


def _contradicts(definition: JsonObject, effect: Effect) -> bool:
    """Whether a server's own hints say more effects of a tool than its configuration; missing hints say nothing."""
    hints = definition.get("annotations")
    if effect is not Effect.READ or not isinstance(hints, dict):
        return False
    return hints.get("readOnlyHint") is False or hints.get("destructiveHint") is True


def definition_hash(definition: JsonObject) -> str:
    """Return the pin of a tool: the digest of everything that the server listed for it."""
    return digest(definition)


def definition_hashes(tools: Mapping[str, JsonObject]) -> dict[str, str]:
    """Return the pins of tools, by name."""
    return {tool: definition_hash(definition) for tool, definition in tools.items()}
