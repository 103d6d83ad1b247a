"""What a server listed: its description of itself and its tools, with their pins."""

from collections.abc import Mapping
from dataclasses import dataclass

from mcp_gateway.configuration.options import ServerOptions
from starling.core.json import JsonObject, digest


@dataclass(frozen=True, slots=True)
class Listed:
    """A server's description of itself, and its usable tools: name to whole definition.

    `left_out` names the unusable tools with the reasons.
    """

    description: str
    tools: Mapping[str, JsonObject]
    left_out: tuple[str, ...] = ()

    def faults(self, options: ServerOptions) -> list[tuple[str, str]]:
        """Return the faults of a server that can be used all the same, each with what to do about it."""
        found: list[tuple[str, str]] = []
        if self.left_out:
            found.append((f"Left out: {'; '.join(self.left_out)}.", "Report it to the server's author."))
        if misnamed := sorted(options.named_tools - self.tools.keys()):
            said = f"Its configuration names tools that it doesn't have: {', '.join(misnamed)}."
            found.append((said, "Correct the names under `x-starling`: their settings apply to no tool."))
        return found


def definition_hash(definition: JsonObject) -> str:
    """Return the pin of a tool: the digest of everything that the server listed for it."""
    return digest(definition)
