"""Agent cards: the supervisor's view of agents."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from brain.prompts import Xml, element
from brain.registry.card_text import degraded_text, working_text
from starling.core.agents import LLMAgentConfig, Persona, RuntimeName
from starling.core.llm import ModelRole
from starling.core.model_output.names import aliases, near_matches, resolve
from starling.core.principal import Grant
from starling.core.teams.stars import StarSpec
from starling.core.text import one_line
from starling.core.tool_calls import Effect, MemberApproval, ReviewPolicy
from starling.core.tools import Halts, ToolDefinition

type AgentKind = Literal["specialist", "team", "builtin", "custom", "member"]

_CARD_CHARS: Final = 250  # of a whole card
_LOST_CHARS: Final = 80
_NO_TOOLS: Final = "This run may call none of its tools."


@dataclass(frozen=True, slots=True)
class AgentCard:
    """An agent: its name, what it is good for, what it may do and its state.

    A specialist is bound to one `server`; a builtin answers with the prompt of its name, asked of `role`; a custom
    agent does what its `config` says, and the agent that `reviewer` configures judges it. `runtime` is the one that
    is asked for. A team is made of its `star`, whose `members` are cards by name: of kind `member`, or `team` for a
    team inside it. Its tools are those of the members that can work. `reflect` is the review policy of its results,
    None where nobody set one, `approval` whether each of its calls that may change something needs a person's approval.
    `lost` are those of its tools that can't be called now, each with a word that says why.
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
    star: StarSpec | None = None
    members: Mapping[str, "AgentCard"] = field(default_factory=dict[str, "AgentCard"])
    reflect: ReviewPolicy | None = None
    approval: MemberApproval = "policy"
    lost: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def servers(self) -> tuple[str, ...]:
        """The servers that it can't work without; of a team, those of all its members."""
        if self.members:
            return tuple(dict.fromkeys(server for member in self.members.values() for server in member.servers))
        if self.server:
            return (self.server,)
        return self.config.servers if self.config else ()

    @property
    def is_prompted(self) -> bool:
        """Whether it gets messages of its own: a team's members do, and the architect asks for each step."""
        return self.star is None and not self.is_architect

    @property
    def is_architect(self) -> bool:
        """Whether it is the builtin that builds teams."""
        return self.kind == "builtin" and self.name == ARCHITECT.name

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
        if self.lost and not self.degraded:
            lost = ", ".join(f"{name}: {why}" for name, why in self.lost.items())
            attributes["unavailable"] = one_line(lost, _LOST_CHARS)
        room = _CARD_CHARS - len(element("agent", "", **attributes))
        if self.degraded:
            return element("agent", degraded_text(self.description, self.degraded, room), **attributes)
        tools = [tool for tool in self.tools if tool.name not in self.lost]
        return element("agent", working_text(self.description, tools, room, wanted), **attributes)


def with_members(team: AgentCard, members: Mapping[str, AgentCard]) -> AgentCard:
    """Return the card of a team with these members.

    It is degraded where no member works of those that are to use tools: writers alone would invent results.
    """
    users = [member for member in members.values() if member.servers]
    tools = {tool.full_name: tool for member in users if not member.degraded for tool in member.tools}
    reasons = [f"{member.name}: {member.degraded}" for member in users if member.degraded]
    refused = f"No member that uses tools can work: {' '.join(reasons)}" if reasons and not tools else ""
    return replace(team, members=members, tools=tuple(tools.values()), degraded=refused)


def degraded_members(team: AgentCard) -> dict[str, str]:
    """Return which members of a team can't work now, and why; by name, `outer/inner` for members of a team inside."""
    found: dict[str, str] = {}
    for name, member in team.members.items():
        inside = {f"{name}/{inner}": reason for inner, reason in degraded_members(member).items()}
        found |= {name: member.degraded} if member.degraded else inside
    return found


GENERALIST: Final = AgentCard(
    "generalist", "builtin", "Answers from general knowledge, writes, translates, summarises. Has no tools."
)
CODER: Final = AgentCard("coder", "builtin", "Writes and explains program code. Can't run it.", role=ModelRole.CODING)
ARCHITECT: Final = AgentCard("architect", "builtin", "Builds a new team of agents.")
BUILTINS: Final = (GENERALIST, CODER, ARCHITECT)


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
        by_tool = aliases(
            {
                name: [name for tool in card.tools for name in (tool.name, tool.full_name)]
                for name, card in self.cards.items()
                if card.kind != "team"
            }
        )
        return resolve(written, by_name) or resolve(written, by_tool) or written

    def unknown(self, written: str) -> str:
        """Return the error for a name that means no agent, with the nearest names."""
        near = near_matches(written, self.cards)
        return f"There is no agent {written!r}.{f' Did you mean {" or ".join(near)}?' if near else ''}"

    def limited(self, effects: frozenset[Effect], degraded: Mapping[str, str], grant: Grant | None = None) -> "Roster":
        """Return the roster of a run: only tools of allowed effects that are granted, and servers as they are now.

        `degraded` says why, by server. Specialists whose tools are all forbidden are left out, and so are those of
        servers that the grant doesn't reach. Members of teams that can't work are degraded. Without a grant, everything
        is granted.
        """
        limits = _Limits(effects, degraded, grant)
        limited = {name: limits.applied(card) for name, card in self.cards.items()}
        return Roster({name: card for name, card in limited.items() if card})

    def halted_servers(self, halts: Halts, tenant: str, caller: str) -> dict[str, str]:
        """Return why servers of its agents are switched off for a run of a tenant, by server.

        `caller` is the key that the run was requested with.
        """
        if reason := halts.everything(tenant, caller):
            return {server: reason for card in self.cards.values() for server in card.servers}
        return dict(halts.named("server", tenant))

    def halted(self, reasons: Mapping[str, str]) -> "Roster":
        """Return the roster with those agents that were switched off as such, also where they are members of teams.

        `reasons` says why, by name.
        """
        if not reasons:
            return self
        return Roster({name: _halted(card, reasons) for name, card in self.cards.items()})

    def without(self, name: str) -> "Roster":
        """Return the roster without an agent."""
        return Roster({other: card for other, card in self.cards.items() if other != name})


def _halted(card: AgentCard, reasons: Mapping[str, str]) -> AgentCard:
    if reason := reasons.get(card.star.name if card.star else card.name):
        return replace(card, degraded=reason)
    if not card.members:
        return card
    members = {name: _halted(member, reasons) if member.star else member for name, member in card.members.items()}
    return with_members(card, members) if members != card.members else card


@dataclass(frozen=True, slots=True)
class _Limits:
    """What a run may use: tools of these effects that are granted, of servers that are not degraded."""

    effects: frozenset[Effect]
    degraded: Mapping[str, str]
    grant: Grant | None

    def applied(self, card: AgentCard) -> AgentCard | None:
        """Return the card with what it may use, None where it is left out."""
        if card.kind == "team":
            return self._team(card)
        tools = self._tools(card)
        if (card.tools and not tools) or not (
            self.grant is None or card.server is None or self.grant.reaches(card.server)
        ):
            return None
        lost = {name: self.degraded[name] for name in card.servers if self.degraded.get(name)}
        if card.server:
            return replace(card, tools=tools, degraded=lost.get(card.server, ""))
        reasons = " ".join(f"{name}: {reason}" for name, reason in lost.items())
        return replace(card, tools=tools, degraded=reasons or card.degraded)

    def _team(self, card: AgentCard) -> AgentCard:
        """Return the team with limited members: the same card where all of them may do what they could, as is usual."""
        members: dict[str, AgentCard] = {}
        for name, member in card.members.items():
            if member.kind == "team":
                members[name] = self._team(member)
                continue
            tools = self._tools(member)
            reason = member.degraded or self.degraded.get(member.server or "", "")
            reason = reason or (_NO_TOOLS if member.server and not tools else "")
            unchanged = len(tools) == len(member.tools) and reason == member.degraded
            members[name] = member if unchanged else replace(member, tools=tools, degraded=reason)
        unchanged = all(member is card.members[name] for name, member in members.items())
        return card if unchanged else with_members(card, members)

    def _tools(self, card: AgentCard) -> tuple[ToolDefinition, ...]:
        return tuple(
            tool
            for tool in card.tools
            if tool.effect in self.effects and (self.grant is None or self.grant.permits(tool.server, tool.full_name))
        )
