"""Changes to MCP servers and epochs: plan, reload, add, remove, roll back."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, cast

from brain.registry.custom_agents import broken_agents
from brain.registry.manifest import Changes, Manifest, difference
from brain.registry.prompt_versions import PromptChoice, PromptSelection
from brain.registry.repository import Activation, AgentRepository, EpochRepository, StarRepository
from brain.registry.service import with_servers
from brain.registry.team_cards import broken_teams
from mcp_gateway.configuration.servers import McpConfig, ServerConfig, server_of
from mcp_gateway.configuration.stdio_over_http import StdioRules, inactive, reason_not_to_list
from mcp_gateway.gateway import Gateway
from mcp_gateway.registration.approved_tools import rolled_back, stored_row, with_approved
from mcp_gateway.registration.catalog import ServerProbe
from mcp_gateway.registration.listed_tools import Listed
from mcp_gateway.registration.pins import Pins
from mcp_gateway.registration.repository import ListedServer, ServerRepository, ServerRow
from mcp_gateway.registration.server_rows import known_row, row_faults
from starling.app.registry.epoch_publisher import EpochPublisher, entries_of
from starling.app.registry.governance import unknown_names, with_governance
from starling.core.errors import ForbiddenError, InvalidRequestError
from starling.core.governance import GovernanceTable
from starling.core.json import JsonObject
from starling.core.llm import PromptVersion
from starling.core.tools import ServerListing, ServerSource
from starling.infra.postgres.audit import Actor, AuditedChange

_WAS_DEGRADED = "It couldn't be listed when this epoch was made."
_REMOVE_THERE = "`starling server remove` there removes it; a kill switch stops its calls from anywhere."
_RELOAD = "`starling registry reload` lists it again."


@dataclass(frozen=True, slots=True)
class PromptChange:
    """The wording of a prompt before and after a change; null where there is none."""

    before: PromptVersion | None
    after: PromptVersion | None


@dataclass(frozen=True, slots=True)
class RegistryReport:
    """The active epoch, the changes that were made or would be made, and the faults of the result.

    `warnings` say which servers can't be listed and why, `broken_agents` which custom agents can't work then, by
    `tenant/name`, and `broken_teams` which members of teams can't, or only without some of their tools.
    `tool_settings` names the settings that were set for single tools, by full name: they win over the document.
    `quarantined` are tools of servers that agents get only once they are approved, with the reasons.
    `prompts` has the wording before and after of each prompt that changed; `prompt_warnings` says, by prompt or for
    the source `langfuse`, why a text isn't used. `governance_warnings` name what the governance table means and there
    isn't, and its bounds that have no effect.
    """

    epoch: int
    changed: bool
    changes: Changes
    warnings: Mapping[str, str]
    broken_agents: Mapping[str, str]
    broken_teams: Mapping[str, str]
    tool_settings: Mapping[str, tuple[str, ...]]
    quarantined: Mapping[str, Mapping[str, str]]
    prompts: Mapping[str, PromptChange] = field(default_factory=dict[str, PromptChange])
    prompt_warnings: Mapping[str, str] = field(default_factory=dict[str, str])
    governance_warnings: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class RegistryService:
    """Changes servers. Each change writes its rows, its epoch and its audit entry in one transaction.

    Servers are started by this process, with its environment, only to list their tools.
    """

    epochs: EpochRepository
    agents: AgentRepository
    stars: StarRepository
    prompts: PromptSelection
    servers: Callable[[EpochPublisher | None], ServerRepository]  # a publisher takes part in each change
    gateway: Callable[[ServerRepository], AbstractAsyncContextManager[Gateway]]
    stdio_rules: StdioRules  # for documents that come over HTTP

    async def plan(
        self,
        config: McpConfig | None,
        *,
        relist: bool = False,
        source: ServerSource = "file",
        governance: GovernanceTable | None = None,
    ) -> RegistryReport:
        """Return what `reload` with prompts would change now; writes nothing.

        Lists the same servers; for a document over HTTP none that is not in use, where that would start a process or
        send the value of a variable. Raises as `reload`.
        """
        if config is None:
            rows = await self.servers(None).servers()
        else:
            unlisted = await self._checked(config) if source == "api" else None
            async with self.gateway(self.servers(None)) as gateway:
                change = await gateway.catalog.plan(config, relist=relist, source=source, unlisted=unlisted)
            rows = change.rows()
        choice = await self.prompts.newest()
        active = await self.epochs.active()
        after = with_governance(choice.applied(with_servers(active.manifest, entries_of(rows))), governance)
        report = await self._report(active.number, difference(active.manifest, after), after, rows)
        return _with_prompts(report, active.manifest, after, choice)

    async def reload(
        self,
        config: McpConfig | None,
        actor: Actor,
        *,
        relist: bool = False,
        source: ServerSource = "file",
        with_prompts: bool = False,
        governance: GovernanceTable | None = None,
    ) -> RegistryReport:
        """Replace the servers that came from files by these, or with `source` "api" those of all documents.

        Without a `config` servers stay as they are, and without a table of `governance` so does what runs are allowed.
        With `with_prompts` it takes the texts that the sources of prompts have now. Lists new, changed and degraded
        servers; with `relist` all of them. Raises ConfigurationError where a name belongs to a server that was added
        another way, ForbiddenError where a document over HTTP has a new or changed stdio server that is not allowed,
        InvalidRequestError where the table names what there isn't.
        """
        if config is not None and source == "api":
            await self._checked(config)
        choice = await self.prompts.newest() if with_prompts else None
        publisher = EpochPublisher(self.epochs, actor, "registry.reload", prompts=choice, governance=governance)
        servers = self.servers(publisher)
        if config is None:
            await servers.change((), ())
        else:
            async with self.gateway(servers) as gateway:
                await gateway.catalog.sync(config, relist=relist, source=source)
        done = publisher.activation
        report = await self._applied(done)
        return _with_prompts(report, done.former, done.epoch.manifest, choice) if choice else report

    async def add(
        self,
        name: str,
        config: ServerConfig,
        actor: Actor,
        listed: Listed | None = None,
        *,
        source: ServerSource = "host",
    ) -> tuple[ServerListing, RegistryReport]:
        """Add one server that no file names, started here unless `listed` is given; return its listing, and the report.

        Raises ConfigurationError, ServerUnavailableError, and ForbiddenError as `reload` does.
        """
        if source == "api":
            await self._checked({name: config})
        publisher = EpochPublisher(self.epochs, actor, "server.add")
        async with self.gateway(self.servers(publisher)) as gateway:
            listings = await gateway.catalog.add(name, config, listed, source)
        added = next(listing for listing in listings if listing.name == name)
        return added, await self._applied(publisher.activation)

    async def reconfigure(self, name: str, config: ServerConfig, actor: Actor) -> RegistryReport:
        """Replace the configuration of a server that no file names. Raises NotFoundError, ConfigurationError."""
        publisher = EpochPublisher(self.epochs, actor, "server.configure")
        async with self.gateway(self.servers(publisher)) as gateway:
            await gateway.catalog.reconfigure(name, config)
        return await self._applied(publisher.activation)

    async def configure_tool(self, name: str, tool: str, document: Mapping[str, Any], actor: Actor) -> RegistryReport:
        """Replace the settings of one tool that win over its server's configuration; an empty document removes them.

        Raises NotFoundError, InvalidRequestError.
        """
        change = AuditedChange("server.tool", f"{name}.{tool}", {"settings": dict(document)})
        publisher = EpochPublisher(self.epochs, actor, "server.configure", change)
        async with self.gateway(self.servers(publisher)) as gateway:
            await gateway.catalog.configure_tool(name, tool, document)
        return await self._applied(publisher.activation)

    async def approve(self, name: str, hashes: Mapping[str, str], actor: Actor) -> RegistryReport:
        """Approve definitions that a server offers, by tool as hashes: runs accepted from now on can use them.

        Raises NotFoundError for a server, or a tool that it doesn't offer, ConflictError for one that changed again.
        """
        change = AuditedChange("server.approve", name, {"tools": dict(hashes)})
        publisher = EpochPublisher(self.epochs, actor, "registry.approve", change)
        servers = self.servers(publisher)
        while True:
            known = await servers.servers()
            row = known_row(name, known)
            pins = with_approved((await servers.pins([name])).get(name, {}), hashes, actor.name)
            approved = ListedServer(stored_row(row, pins) if row.state == "ready" else row, {}, pins)
            if await servers.change((), [approved], known):
                return await self._applied(publisher.activation)

    async def remove(self, name: str, actor: Actor, *, source: ServerSource = "host") -> RegistryReport:
        """Remove one server, also for running runs. Raises NotFoundError.

        Raises ForbiddenError for a request over HTTP about a server that was added on the host.
        """
        if source == "api" and known_row(name, await self.servers(None).servers()).source == "host":
            raise _of_the_host(name)
        publisher = EpochPublisher(self.epochs, actor, "server.remove")
        async with self.gateway(self.servers(publisher)) as gateway:
            await gateway.catalog.remove(name)
        return await self._applied(publisher.activation)

    async def probe(self, name: str) -> ServerProbe:
        """Start and list a known server, changing nothing. Raises NotFoundError, ServerUnavailableError."""
        async with self.gateway(self.servers(None)) as gateway:
            return await gateway.catalog.try_out(name)

    async def rollback(self, number: int | None, actor: Actor, *, source: ServerSource = "file") -> RegistryReport:
        """Make a new epoch with the servers of an earlier one; default: the one before servers last changed.

        Prompts and built-in agents stay those of this version, and tenants keep their agents and teams.
        Raises NotFoundError, InvalidRequestError; ForbiddenError as `reload` does.
        """
        wanted_epoch = number or await self.epochs.before_other_servers()
        if wanted_epoch is None:
            raise InvalidRequestError("There is no earlier epoch with other servers.", "Nothing was changed.")
        target = await self.epochs.get(wanted_epoch)
        publisher = EpochPublisher(self.epochs, actor, "registry.rollback")
        servers = self.servers(publisher)
        wanted = await _restored(servers, target.manifest, source)
        if source == "api":
            await self._checked({name: server_of(row.config) for name, row in wanted.items()})
        while True:
            known = await servers.servers()
            if source == "api":
                wanted = _of_the_api(wanted, known)
            removed = {row.name for row in known} - wanted.keys()
            pins = await servers.pins(wanted)
            rows = [_rolled_back(row, known, pins.get(row.name, {}), actor) for row in wanted.values()]
            if await servers.change(removed, rows, known):
                return await self._applied(publisher.activation)

    async def _checked(self, config: McpConfig) -> dict[str, str]:
        """Return the servers of a document over HTTP that a plan doesn't list, with reasons. Raises ForbiddenError."""
        known = {row.name: row.config_hash for row in await self.servers(None).servers()}
        self.stdio_rules.check(config, known)
        return {name: reason for name in inactive(config, known) if (reason := reason_not_to_list(config[name]))}

    async def _applied(self, activation: Activation) -> RegistryReport:
        rows = await self.servers(None).servers()
        return await self._report(activation.epoch.number, activation.changes, activation.epoch.manifest, rows)

    async def _report(self, epoch: int, changes: Changes, after: Manifest, rows: Sequence[ServerRow]) -> RegistryReport:
        teams = await broken_teams(self.stars, after)
        named = changes.model_copy(update={"broken_teams": tuple(teams)})
        return RegistryReport(
            epoch=epoch,
            changed=bool(named),
            changes=named,
            warnings={row.name: " ".join(faults).strip() for row in rows if (faults := row_faults(row))[0]},
            broken_agents=await broken_agents(self.agents, after),
            broken_teams=teams,
            tool_settings={
                f"{row.name}.{tool}": tuple(sorted(settings))
                for row in rows
                for tool, settings in row.tool_settings.items()
            },
            quarantined={row.name: row.quarantined for row in rows if row.quarantined},
            governance_warnings=[*unknown_names(after.governance, after), *after.governance.ineffective()],
        )


def _with_prompts(report: RegistryReport, before: Manifest, after: Manifest, choice: PromptChoice) -> RegistryReport:
    changed = [*report.changes.prompts.added, *report.changes.prompts.changed, *report.changes.prompts.removed]
    prompts = {name: PromptChange(_wording(before, name), _wording(after, name)) for name in changed}
    return replace(report, prompts=prompts, prompt_warnings=choice.faults)


def _wording(manifest: Manifest, name: str) -> PromptVersion | None:
    return manifest.prompt_version(name) if name in manifest.prompts else None


async def _restored(servers: ServerRepository, manifest: Manifest, source: ServerSource) -> dict[str, ServerRow]:
    """Return the servers of an epoch; those that came over HTTP count as the host's where its admin restores them."""
    entries = manifest.servers
    hashes = {hash_ for entry in entries.values() for hash_ in (entry.config_hash, entry.settings_hash)}
    stored = await servers.configs(hashes)
    return {
        name: ServerRow(
            name=name,
            config=stored[entry.config_hash],
            config_hash=entry.config_hash,
            source="host" if (entry.source, source) == ("api", "file") else entry.source,
            state=entry.state,
            description=entry.description,
            tools={tool: pin.hash for tool, pin in entry.tools.items()},
            error=_WAS_DEGRADED if entry.state == "degraded" else "",
            remedy=_RELOAD if entry.state == "degraded" else "",
            tool_settings=cast("Mapping[str, JsonObject]", stored.get(entry.settings_hash, {})),
        )
        for name, entry in entries.items()
    }


def _of_the_api(wanted: Mapping[str, ServerRow], known: Iterable[ServerRow]) -> dict[str, ServerRow]:
    """Return servers as a rollback over HTTP restores them: what isn't in use counts as what came that way.

    Raises ForbiddenError where it would remove or change a server that was added on the host.
    """
    sources: dict[tuple[str, str], ServerSource] = {}
    for row in known:
        if row.source == "host" and (row.name not in wanted or wanted[row.name].config_hash != row.config_hash):
            raise _of_the_host(row.name)
        sources[row.name, row.config_hash] = row.source
    return {name: replace(row, source=sources.get((name, row.config_hash), "api")) for name, row in wanted.items()}


def _of_the_host(name: str) -> ForbiddenError:
    return ForbiddenError(f"The server {name!r} was added on the machine of the platform.", _REMOVE_THERE)


def _rolled_back(row: ServerRow, known: Iterable[ServerRow], pins: Pins, actor: Actor) -> ListedServer:
    """Return a server as it is stored anew: with its current error, if it is otherwise unchanged."""
    row = next((one for one in known if replace(one, error=row.error, remedy=row.remedy) == row), row)
    restored = rolled_back(pins, row.tools, actor.name)
    return ListedServer(stored_row(row, restored) if row.state == "ready" else row, {}, restored)
