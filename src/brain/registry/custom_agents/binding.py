"""From a custom agent's configuration to its card: its tools are those that the epoch pins."""

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
    """What tool names come to: the `(server, tool)` pairs that there are, and the names that mean nothing."""

    found: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]


def select_tools(names: Iterable[str], offer: Mapping[str, Collection[str]]) -> ToolSelection:
    """Look `server.tool` and `server.*` up in what each server offers."""
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
    asked = select_tools(config.tools, offer)
    return AgentCard(
        name=config.id,
        kind="custom",
        description=described(config),
        tools=tuple(offer[server][tool] for server, tool in asked.found),
        degraded=why_not(config, asked, others),
        config=config,
        reviewer=others.get(config.reflection_agent_id or ""),
    )


def described(config: LLMAgentConfig) -> str:
    """Return what an agent is good for: the beginning of what it is told."""
    text = " ".join((config.behavior_template or _UNDESCRIBED).split())
    return text if len(text) <= _DESCRIPTION_CHARS else f"{text[: _DESCRIPTION_CHARS - 1]}…"


def why_not(config: LLMAgentConfig, asked: ToolSelection, others: Container[str]) -> str:
    """Return why an agent can't work beside others of its tenant; nothing where it can."""
    reasons: list[str] = []
    if asked.missing:
        reasons.append(f"It needs tools that aren't there: {', '.join(asked.missing)}.")
    if config.reflection_agent_id and config.reflection_agent_id not in others:
        reasons.append(f"There is no agent {config.reflection_agent_id!r} to review its results.")
    if config.render_policy and config.render_policy not in POLICIES:
        reasons.append(f"There is no render policy {config.render_policy!r}.")
    return " ".join(reasons)
