"""Agent cards: the supervisor's view of agents."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from brain.prompts import Xml, element, lines
from brain.registry.card_text import degraded_text, working_text
from starling.core.agents import LLMAgentConfig, Persona, RuntimeName
from starling.core.llm import ModelRole
from starling.core.model_output.names import aliases, near_matches, resolve
from starling.core.principal import Grant
from starling.core.tool_calls import Effect
from starling.core.tools import ToolDefinition

type AgentKind = Literal["specialist", "team", "builtin", "custom"]

_CARD_CHARS: Final = 250  # of a whole card


@dataclass(frozen=True, slots=True)
class AgentCard:
    """An agent: its name, what it is good for, what it may do and its state.

    A specialist is bound to one `server`; a builtin answers with the prompt of its name, asked of `role`; a custom
    agent does what its `config` says, and the agent that `reviewer` configures judges it. `runtime` is the one that
    is asked for.
    """

    name: str
    kind: AgentKind
    description: str
    server: str | None = None
    tools: tuple[ToolDefinition, ...] = ()
    role: ModelRole = ModelRole.REASONING
    degraded: str = ""  # why it can't work now
    config: LLMAgentConfig | None = None
    reviewer: LLMAgentConfig | None = None
    runtime: RuntimeName = "native"
    persona: Persona | None = None

    @property
    def servers(self) -> tuple[str, ...]:
        """The servers that it can't work without."""
        if self.server:
            return (self.server,)
        return self.config.servers if self.config else ()

    @property
    def model(self) -> str | None:
        """The model that it asks instead of its role's."""
        return self.config.llm_model if self.config else None

    def element(self, wanted: str = "") -> Xml:
        """Return the card as the supervisor's prompt shows it, at most 250 characters.

        Tools that share words with the text `wanted` come first where not all have room.
        """
        state = "degraded" if self.degraded else "ready"
        attributes = {"name": self.name, "kind": self.kind, "state": state}
        room = _CARD_CHARS - len(element("agent", "", **attributes))
        if self.degraded:
            return element("agent", degraded_text(self.description, self.degraded, room), **attributes)
        return element("agent", working_text(self.description, self.tools, room, wanted), **attributes)


GENERALIST: Final = AgentCard(
    "generalist", "builtin", "Answers from general knowledge, writes, translates, summarises. Has no tools and says so."
)
CODER: Final = AgentCard("coder", "builtin", "Writes and explains program code. Can't run it.", role=ModelRole.CODING)
BUILTINS: Final = (GENERALIST, CODER)


@dataclass(frozen=True, slots=True)
class Roster:
    """The agents that one run may choose from, by name."""

    cards: Mapping[str, AgentCard]

    def get(self, name: str) -> AgentCard | None:
        """Return the card of an agent, None where the roster has no such name."""
        return self.cards.get(name)

    def resolve(self, written: str) -> str:
        """Return the name of the agent that `written` can only mean: by its name, its server or a tool; else `written`.

        Agents that this run may not choose are not in the roster, and so are never meant.
        """
        if written in self.cards:
            return written
        by_name = aliases({name: [card.server] if card.server else [] for name, card in self.cards.items()})
        by_tool = aliases({name: _tool_names(card) for name, card in self.cards.items()})
        return resolve(written, by_name) or resolve(written, by_tool) or written

    def unknown(self, written: str) -> str:
        """Return the error for a name that means no agent, with the nearest names."""
        near = near_matches(written, self.cards)
        return f"There is no agent {written!r}.{f' Did you mean {" or ".join(near)}?' if near else ''}"

    def limited(self, effects: frozenset[Effect], degraded: Mapping[str, str], grant: Grant | None = None) -> "Roster":
        """Return the roster of a run: only tools of allowed effects that are granted, and servers as they are now.

        `degraded` says why, by server. Specialists whose tools are all forbidden are left out, and so are those of
        servers that the grant doesn't reach. Without a grant, everything is granted.
        """
        chosen: dict[str, AgentCard] = {}
        for name, card in self.cards.items():
            tools = tuple(tool for tool in card.tools if tool.effect in effects and _permits(grant, tool))
            if (card.tools and not tools) or not _reaches(grant, card):
                continue
            chosen[name] = replace(card, tools=tools, degraded=_why_not(card, degraded))
        return Roster(chosen)

    def halted(self, reasons: Mapping[str, str]) -> "Roster":
        """Return the roster with those agents that were switched off as such; `reasons` says why, by name."""
        found = {name: replace(self.cards[name], degraded=reasons[name]) for name in reasons if name in self.cards}
        return Roster({**self.cards, **found}) if found else self

    def elements(self) -> Xml:
        """Return all cards, one a line."""
        return lines(card.element() for card in self.cards.values())


def _tool_names(card: AgentCard) -> list[str]:
    return [name for tool in card.tools for name in (tool.name, tool.full_name)]


def _permits(grant: Grant | None, tool: ToolDefinition) -> bool:
    return grant is None or grant.permits(tool.server, tool.full_name)


def _reaches(grant: Grant | None, card: AgentCard) -> bool:
    return grant is None or card.server is None or grant.reaches(card.server)


def _why_not(card: AgentCard, degraded: Mapping[str, str]) -> str:
    if card.server:
        return degraded.get(card.server, "")
    return " ".join(f"{name}: {degraded[name]}" for name in card.servers if degraded.get(name)) or card.degraded
