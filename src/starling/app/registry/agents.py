"""Lists the agents of a tenant; creates and archives custom agents."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Final, Literal

from brain.registry.cards import AgentCard, AgentKind, Roster
from brain.registry.custom_agents import checked, described, granted, pinned_agents, with_agent, without_agent
from brain.registry.manifest import AgentPin, Manifest
from brain.registry.repository import Activation, AgentRepository, AgentVersion, EpochRepository
from brain.registry.service import Registry, with_servers
from brain.retrieval.agent_finder import AgentFinder
from brain.retrieval.search import AgentSearch
from mcp_gateway.registration.repository import ServerRepository
from starling.core.agents import LLMAgentConfig
from starling.core.errors import ConfigurationError, InvalidRequestError, NotFoundError
from starling.core.governance import GovernanceRow
from starling.core.json import JsonObject
from starling.core.principal import Principal
from starling.core.runs import RunConfig
from starling.core.tool_calls import Effect
from starling.core.tools import Halts
from starling.infra.postgres.audit import Actor, AuditedChange, record
from starling.infra.postgres.engine import EngineConnection
from starling.infra.postgres.runs.builds import check_not_being_built
from starling.infra.postgres.server_breakers import failing_text

type Verdict = Literal["APPROVED", "FIXED", "REJECTED"]
_VERDICTS: Final[tuple[Verdict, ...]] = ("APPROVED", "FIXED", "REJECTED")
_REMEDY = "`starling agent list` shows the existing agents."


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent as the supervisor sees it. `reason` states why it can't work; only custom agents have a `version`."""

    name: str
    kind: AgentKind
    description: str
    state: Literal["ready", "degraded", "archived"]
    reason: str = ""
    tools: tuple[str, ...] = ()
    version: str | None = None


@dataclass(frozen=True, slots=True)
class ConfiguredVersion:
    """One configuration of a custom agent: its hash, and when it was first stored."""

    version: str
    created_at: datetime
    active: bool
    config: LLMAgentConfig


@dataclass(frozen=True, slots=True)
class AgentHistory:
    """An agent with all its versions, oldest first; only custom agents have versions.

    `verdicts` counts those on its results, in all runs whose events are kept, without tasks inside teams.
    """

    agent: Agent
    versions: tuple[ConfiguredVersion, ...]
    verdicts: Mapping[Verdict, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentMatch(Agent):
    """An agent that fits a query: its score, the sum of `parts`, and the `tool` that fits best.

    Each part is the weighted z-score of one similarity among all agents: of words, of characters within words and,
    where vectors are used, of meaning; each with the whole card and with the best tool.
    """

    score: float
    parts: Mapping[str, float]
    tool: str


@dataclass(frozen=True, slots=True)
class AgentList:
    """All agents of a tenant in the active epoch, or those that fit a query, best first, out of `total`.

    `warning` says why a query was answered by words alone.
    """

    epoch: int
    agents: tuple[AgentMatch | Agent, ...] = ()
    total: int | None = None
    warning: str = ""


@dataclass(frozen=True, slots=True)
class CreatedAgent:
    """A stored configuration: its version, and the first epoch that has it.

    `left_out` are the tools that it asked for and that the key of its maker may not call.
    """

    name: str
    version: str
    epoch: int
    tools: tuple[str, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ArchivedAgent:
    """An archived agent, and the first epoch without it."""

    name: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that runs can call: `name` is `server.tool`, `effect` what it may change outside."""

    name: str
    description: str
    input_schema: JsonObject
    effect: Effect


@dataclass(frozen=True, slots=True)
class ToolList:
    """The tools of an epoch that single calls of a caller can call, by name."""

    epoch: int
    tools: Sequence[Tool]


@dataclass(frozen=True, slots=True)
class AgentService:
    """Lists agents, and changes custom ones: configuration, epoch and audit entry in one transaction."""

    epochs: EpochRepository
    agents: AgentRepository
    servers: ServerRepository
    rosters: Registry
    ranker: AgentFinder
    check_model: Callable[[str], None]
    halts: Callable[[], Awaitable[Halts]]
    team_names: Callable[[EngineConnection, str], Awaitable[Collection[str]]]

    async def create(self, maker: Principal, config: LLMAgentConfig, actor: Actor) -> CreatedAgent:
        """Create an agent or a new version of it for runs accepted from now on.

        Raises InvalidRequestError for unknown names, ForbiddenError where the maker may call none of its tools or it
        replaces another maker's agent, ConflictError while a run builds a team of this name.
        """
        if config.llm_model is not None:
            try:
                await asyncio.to_thread(self.check_model, config.llm_model)  # in a thread: that may import an SDK
            except ConfigurationError as error:
                raise InvalidRequestError(f"llm_model: {error.message}", error.remedy) from None
        async with self.agents.changing() as connection:
            manifest = (await self.epochs.begin(connection)).manifest
            teams = await self.team_names(connection, maker.tenant)
            checked(config, manifest, maker, teams, await self.agents.names(connection, maker.tenant))
            await self.agents.check_maker(connection, maker, config.id)
            await check_not_being_built(connection, maker.tenant, config.id)
            kept = granted(config, manifest, maker.tenant, maker.grant)
            await self.agents.save(connection, maker.tenant, kept, maker.maker)
            pin = AgentPin(tenant=maker.tenant, name=kept.id, hash=kept.hash)
            entry = AuditedChange("agent.create", kept.id, {"hash": kept.hash})
            activation = await self._activate(connection, actor, entry, partial(with_agent, pin=pin))
        left_out = tuple(tool for tool in config.tools if tool not in kept.tools)
        return CreatedAgent(kept.id, kept.hash, activation.epoch.number, kept.tools, left_out)

    async def archive(self, caller: Principal, name: str, actor: Actor) -> ArchivedAgent:
        """Remove an agent for runs accepted from now on; its versions are kept.

        Raises NotFoundError, ForbiddenError for another maker's agent.
        """
        async with self.agents.changing() as connection:
            if name not in pinned_agents((await self.epochs.begin(connection)).manifest, caller.tenant):
                raise NotFoundError("custom agent", name, _REMEDY)
            await self.agents.check_maker(connection, caller, name)
            gone = partial(without_agent, tenant=caller.tenant, name=name)
            activation = await self._activate(connection, actor, AuditedChange("agent.archive", name, {}), gone)
        return ArchivedAgent(name=name, epoch=activation.epoch.number)

    async def list(self, caller: Principal) -> AgentList:
        """Return all agents that a run of the caller could use now, by kind and name."""
        number, roster = await self.usable(caller)
        found = sorted((_agent(card) for card in roster.cards.values()), key=attrgetter("kind", "name"))
        return AgentList(epoch=number, agents=tuple(found))

    async def tools(self, caller: Principal) -> ToolList:
        """Return the tools that single calls of the caller could call now."""
        number, roster = await self.usable(caller, RunConfig())
        offered = {tool.full_name: tool for card in roster.cards.values() if not card.degraded for tool in card.tools}
        tools = [Tool(name, it.description, it.input_schema, it.effect) for name, it in sorted(offered.items())]
        return ToolList(number, tools)

    async def usable(self, caller: Principal, config: RunConfig | None = None) -> tuple[int, Roster]:
        """Return the active epoch and the agents that a run of the caller could use now; number 0 before the first.

        With a `config` only what governance allows its mode and channel; without one, governance sets no bounds.
        """
        number = await self.epochs.active_number()
        if number is None:
            return 0, Roster({})
        roster = await self.rosters.roster(number, caller.tenant)
        rows = {row.name: row for row in await self.servers.servers()}
        reasons = {name: f"{row.error} {row.remedy}".strip() for name, row in rows.items() if row.state == "degraded"}
        needed = {server for card in roster.cards.values() for server in card.servers}
        failing = {name: failing_text(found) for name, found in (await self.servers.breakers.by_server()).items()}
        removed = dict.fromkeys(needed - rows.keys(), "The server was removed.")
        halts = await self.halts()
        reasons = failing | reasons | removed | roster.halted_servers(halts, caller.tenant, caller.key_id)
        table = await self.rosters.governance(number)
        row = table.row(config.mode, config.channel, caller.tenant) if config else GovernanceRow()
        effects = frozenset(Effect if row.effects is None else row.effects)
        limited = roster.limited(effects, reasons, row.granted(caller.grant))
        return number, limited.halted(halts.named("agent", caller.tenant))

    async def find(self, caller: Principal, text: str, limit: int) -> AgentList:
        """Return the agents that a run of the caller could use now and that fit `text` best, best first."""
        number, candidates = await self.usable(caller)
        if not number:
            return AgentList(epoch=0, total=0)
        search = AgentSearch(caller.tenant, await self.rosters.roster(number, caller.tenant), candidates)
        ranking = await self.ranker.rank(search, text, limit)
        found = tuple(
            AgentMatch(**asdict(_agent(candidates.cards[one.name])), score=one.score, parts=one.parts, tool=one.tool)
            for one in ranking.agents
        )
        return AgentList(number, found, len(candidates.cards), ranking.warning)

    async def show(self, caller: Principal, name: str) -> AgentHistory:
        """Return an agent with its versions and verdicts, an archived one too. Raises NotFoundError."""
        found = next((agent for agent in (await self.list(caller)).agents if agent.name == name), None)
        versions = await self.agents.versions(caller.tenant, name)
        if found is None and not versions:
            raise NotFoundError("agent", name, _REMEDY)
        agent = found or await self._out_of_reach(caller.tenant, versions[-1])
        counted = await self.agents.verdicts(caller.tenant, name)
        return AgentHistory(
            agent=agent,
            versions=tuple(
                ConfiguredVersion(one.hash, one.created_at, active=one.hash == agent.version, config=one.config)
                for one in versions
            ),
            verdicts={verdict: counted.get(verdict, 0) for verdict in _VERDICTS},
        )

    async def _activate(
        self, connection: EngineConnection, actor: Actor, entry: AuditedChange, change: Callable[[Manifest], Manifest]
    ) -> Activation:
        activation = await self.epochs.activate(
            connection, actor, lambda manifest: change(with_servers(manifest, manifest.servers))
        )
        if activation.changes:
            await record(connection, actor, entry)
        return activation

    async def _out_of_reach(self, tenant: str, latest: AgentVersion) -> Agent:
        """Return an agent that is not on the caller's roster: archived, or without a tool that the key may call."""
        name, description = latest.config.id, described(latest.config)
        pin = pinned_agents((await self.epochs.active()).manifest, tenant).get(name)
        if pin is None:
            return Agent(name=name, kind="custom", description=description, state="archived")
        reason = "This key may call none of its tools."
        return Agent(
            name=name, kind="custom", description=description, state="degraded", reason=reason, version=pin.hash
        )


def _agent(card: AgentCard) -> Agent:
    return Agent(
        name=card.name,
        kind=card.kind,
        description=card.description,
        state="degraded" if card.degraded else "ready",
        reason=card.degraded,
        tools=tuple(tool.full_name for tool in card.tools),
        version=card.config.hash if card.config else None,
    )
