"""Effects that a server's annotations suggest for its tools. They count once an admin has written them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp_gateway.configuration.options import ServerOptions
from mcp_gateway.configuration.servers import ServerConfig, server_of
from starling.core.json import JsonObject
from starling.core.tool_calls import Effect
from starling.core.tools import hinted_effect

_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint")


@dataclass(frozen=True, slots=True)
class EffectSuggestion:
    """The effect that the annotations of a tool without a set effect suggest; `reason` quotes them."""

    tool: str
    effect: Effect
    reason: str


def suggested_effects(tools: Mapping[str, JsonObject], options: ServerOptions) -> list[EffectSuggestion]:
    """Return a suggestion for each tool that has no effect set, by name; without helpful annotations it is `unsafe`."""
    if options.effect is not Effect.UNSAFE:  # holds for all of its tools
        return []
    unset = (name for name in sorted(tools) if options.tool(name).own_effect is None)
    return [_suggestion(name, tools[name]) for name in unset]


def with_effects(config: ServerConfig, suggestions: Iterable[EffectSuggestion]) -> ServerConfig:
    """Return the configuration with these effects under `x-starling`; other settings of the tools stay."""
    tools = with_effects_of_tools(config.document.get("x-starling"), suggestions)
    return server_of({**config.document, "x-starling": tools})


def with_effects_of_tools(options: Any, suggestions: Iterable[EffectSuggestion]) -> dict[str, Any]:
    """Return the content of `x-starling`, as a file has it or None, with these effects of tools."""
    known: dict[str, Any] = options or {}
    tools: dict[str, Any] = dict(known.get("tools", {}))
    for item in suggestions:
        tools[item.tool] = {**tools.get(item.tool, {}), "effect": item.effect.value}
    return {**known, "tools": tools}


def _suggestion(name: str, definition: JsonObject) -> EffectSuggestion:
    """Suggest by the hints of MCP, of which a missing `destructiveHint` means true, all others false."""
    annotations = definition.get("annotations")
    said = {hint: annotations.get(hint) for hint in _HINTS} if isinstance(annotations, dict) else {}
    given = ", ".join(f"{hint} {str(value).lower()}" for hint, value in said.items() if isinstance(value, bool))
    return EffectSuggestion(name, hinted_effect(definition) or Effect.UNSAFE, given or "no annotations")
