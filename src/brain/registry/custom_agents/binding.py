"""The card of a custom agent, made from its configuration and the tools that the epoch pins."""

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass

from brain.conversation.rendering import POLICIES
from brain.registry.cards import AgentCard
from starling.core.agents import LLMAgentConfig
from starling.core.tools import ToolDefinition

_EVERY = "*"
_UNDESCRIBED = "An agent that a user made, without an instruction of its own."
_DESCRIPTION_CHARS = 300


@dataclass(frozen=True, slots=True)
class ToolSelection:
    """The result of a look-up of tool names: the `(server, tool)` pairs found, and the names that match nothing."""

    found: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]


def select_tools(names: Iterable[str], offer: Mapping[str, Collection[str]]) -> ToolSelection:
    """Look up `server.tool` and `server.*` in the tools of each server."""
    found: dict[tuple[str, str], None] = {}
    missing: list[str] = []
    for name in names:
        server, _, tool = name.partition(".")
        there = [one for one in offer.get(server, ()) if tool in (_EVERY, one)]
        found |= dict.fromkeys((server, one) for one in there)
        missing += [] if there else [name]
    return ToolSelection(tuple(found), tuple(missing))


def custom_card(
    config: LLMAgentConfig, cards: Mapping[str, AgentCard], others: Mapping[str, LLMAgentConfig]
) -> AgentCard:
    """Return the card of an agent beside the specialists in `cards` and the other custom agents of its tenant."""
    offer: dict[str, dict[str, ToolDefinition]] = {
        card.server: {tool.name: tool for tool in card.tools} for card in cards.values() if card.server
    }
    selection = select_tools(config.tools, offer)
    return AgentCard(
        name=config.id,
        kind="custom",
        description=described(config),
        tools=tuple(offer[server][tool] for server, tool in selection.found),
        degraded=degradation(config, selection, others),
        config=config,
        reviewer=others.get(config.reflection_agent_id or ""),
        runtime=config.runtime,
        persona=config.persona,
    )


def described(config: LLMAgentConfig) -> str:
    """Return the description of an agent: the beginning of its instruction."""
    text = " ".join((config.behavior_template or _UNDESCRIBED).split())
    return text if len(text) <= _DESCRIPTION_CHARS else f"{text[: _DESCRIPTION_CHARS - 1]}…"


def degradation(config: LLMAgentConfig, selection: ToolSelection, others: Container[str]) -> str:
    """Return why an agent can't work with the other agents of its tenant; empty if it can."""
    reasons: list[str] = []
    if selection.missing:
        reasons.append(f"It needs tools that aren't there: {', '.join(selection.missing)}.")
    if config.reflection_agent_id and config.reflection_agent_id not in others:
        reasons.append(f"There is no agent {config.reflection_agent_id!r} to review its results.")
    if config.render_policy and config.render_policy not in POLICIES:
        reasons.append(f"There is no render policy {config.render_policy!r}.")
    return " ".join(reasons)
