"""Imports, activates, rolls back and archives teams; each change with its audit entry."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from architect.checks import checked
from architect.compiler import TeamCompiler
from architect.team_world import TeamWorld, nested
from architect.teams.repository import Creator, TeamKey, TeamRepository, TeamSummary, TeamVersion, VersionState
from brain.registry.cards import AgentCard, Roster
from brain.registry.custom_agents.service import pinned_agents
from brain.registry.manifest import Manifest
from brain.registry.repository import EpochRepository
from brain.registry.service import with_servers
from brain.registry.teams.repository import StarRepository
from brain.registry.teams.service import pinned_teams, with_team, without_team
from starling.core.errors import ConflictError, NotFoundError
from starling.core.principal import Principal
from starling.core.stars import StarSpec
from starling.core.teams import Finding, TeamInvalidError, TeamSpec
from starling.infra.postgres.audit import Actor, AuditedChange, record
from starling.infra.postgres.engine import EngineConnection

_REMEDY = "`starling team list` shows your teams."


@dataclass(frozen=True, slots=True)
class TeamList:
    """All teams of a tenant. `cards` are what a run of the caller sees of active ones, by name."""

    epoch: int
    teams: Sequence[TeamSummary]
    cards: Mapping[str, AgentCard]


@dataclass(frozen=True, slots=True)
class TeamDetails:
    """A team: its active version, else its newest. `card` is what a run of the caller sees of an active one."""

    name: str
    chosen: TeamVersion
    versions: int
    card: AgentCard | None


@dataclass(frozen=True, slots=True)
class ImportedTeam:
    """A stored version of a team. Not `created`: it was stored before."""

    name: str
    stored: TeamVersion
    created: bool


@dataclass(frozen=True, slots=True)
class ActivatedTeam:
    """The version that is active, and the first epoch that has it.

    `left_out` are the tools that its spec asks for and that its creator or its activator may not call. `used_in` are
    active teams, as `name@version`, that have this team inside as it was when they were activated.
    """

    name: str
    version: int
    star_hash: str
    epoch: int
    tools: tuple[str, ...]
    left_out: tuple[str, ...]
    used_in: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ArchivedTeam:
    """An archived team, and the first epoch without it. `used_in`: active teams, `name@version`, that keep it."""

    name: str
    epoch: int
    used_in: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TeamService:
    """Teams of tenants. `roster` returns the active epoch and the agents that a run of a caller could use now."""

    epochs: EpochRepository
    teams: TeamRepository
    stars: StarRepository
    roster: Callable[[Principal], Awaitable[tuple[int, Roster]]]
    compiler: TeamCompiler

    async def check(self, caller: Principal, spec: TeamSpec) -> Sequence[Finding]:
        """Return what is wrong with a spec for the caller; nothing if it could be imported."""
        async with self.teams.reading() as connection:
            world = await self._world(connection, (await self.epochs.current(connection)).manifest, caller)
        return await asyncio.to_thread(checked, spec, world)

    async def add(self, caller: Principal, name: str, spec: TeamSpec, actor: Actor) -> ImportedTeam:
        """Store a spec as a draft version of the team `name`. Raises TeamInvalidError.

        A spec that equals the newest version, of a caller with the same grant, is not stored again. It is checked
        before the lock of the registry is taken; an activation checks it again.
        """
        if spec.name != name:
            reason = f"The spec is of {spec.name!r} and was sent for {name!r}."
            raise TeamInvalidError([Finding("name", "other_name", reason, "Send it to the team of its name.")])
        if findings := await self.check(caller, spec):
            raise TeamInvalidError(findings)
        key, spec_hash = TeamKey(caller.tenant, name), await asyncio.to_thread(lambda: spec.hash)
        async with self.teams.changing() as connection:
            await self.epochs.begin(connection)
            states = await self.teams.states(connection, key)
            if states and states[-1].state != "archived" and states[-1].hash == spec_hash:
                newest = await self.teams.version(connection, key, states[-1].version)
                if newest.creator.grant == caller.grant:
                    return ImportedTeam(name, newest, created=False)
            stored = await self.teams.add(connection, caller.tenant, spec, Creator(actor.name, caller.grant))
            detail = {"tenant": caller.tenant, "version": stored.version, "hash": stored.hash}
            await record(connection, actor, AuditedChange("team.import", name, detail))
            return ImportedTeam(name, stored, created=True)

    async def activate(self, caller: Principal, name: str, version: int | None, actor: Actor) -> ActivatedTeam:
        """Compile a version, default the newest, for runs accepted from now on; the active one is superseded.

        Raises NotFoundError, TeamInvalidError.
        """
        async with self.teams.changing() as connection:
            manifest = (await self.epochs.begin(connection)).manifest
            key = TeamKey(caller.tenant, name)
            states = await self._states(connection, key)
            chosen = await self._version(connection, key, states, version or states[-1].version)
            world = await self._world(connection, manifest, caller)
            return await self._activate(connection, "team.activate", caller, chosen, world, actor)

    async def rollback(self, caller: Principal, name: str, actor: Actor) -> ActivatedTeam:
        """Activate the highest version before the active one that was active too, whatever was active in between.

        Versions from before the team was archived don't count. Raises NotFoundError, ConflictError.
        """
        async with self.teams.changing() as connection:
            manifest = (await self.epochs.begin(connection)).manifest
            states = await self._states(connection, TeamKey(caller.tenant, name))
            active = next((one for one in states if one.state == "active"), None)
            if active is None:
                raise ConflictError(
                    f"The team {name!r} is not active.", "`starling team activate` activates a version."
                )
            before = [one for one in states if one.version < active.version and one.state == "superseded"]
            if not before:
                raise ConflictError(
                    f"{name!r} has no version before {active.version} that was active and not archived since.",
                    "`starling team activate NAME@VERSION` activates any version.",
                )
            chosen = await self.teams.version(connection, TeamKey(caller.tenant, name), before[-1].version)
            world = await self._world(connection, manifest, caller)
            return await self._activate(connection, "team.rollback", caller, chosen, world, actor)

    async def archive(self, caller: Principal, name: str, actor: Actor) -> ArchivedTeam:
        """Remove a team for runs accepted from now on; its versions are kept. Raises NotFoundError, ConflictError."""
        key = TeamKey(caller.tenant, name)
        async with self.teams.changing() as connection:
            manifest = (await self.epochs.begin(connection)).manifest
            if all(one.state == "archived" for one in await self._states(connection, key)):
                raise ConflictError(f"The team {name!r} is archived already.")
            await self.teams.archive(connection, key)
            gone = partial(without_team, tenant=caller.tenant, name=name)
            activation = await self.epochs.activate(connection, actor, lambda one: gone(_current(one)))
            await record(connection, actor, AuditedChange("team.archive", name, {"tenant": caller.tenant}))
            world = await self._world(connection, manifest, caller)
            used_in = await self._users(connection, key, world)
        return ArchivedTeam(name, activation.epoch.number, used_in)

    async def list(self, caller: Principal) -> TeamList:
        """Return all teams of the caller's tenant, by name."""
        teams = await self.teams.summaries(caller.tenant)
        if not any(team.state == "active" for team in teams):
            return TeamList(await self.epochs.active_number() or 0, teams, {})
        epoch, roster = await self.roster(caller)
        return TeamList(epoch, teams, {name: card for name, card in roster.cards.items() if card.kind == "team"})

    async def show(self, caller: Principal, name: str) -> TeamDetails:
        """Return a team. Raises NotFoundError."""
        key = TeamKey(caller.tenant, name)
        async with self.teams.reading() as connection:
            states = await self._states(connection, key)
            chosen = await self.teams.version(connection, key, _active_or_newest(states))
        card = (await self.roster(caller))[1].get(name) if chosen.state == "active" else None
        if card and not (card.star and card.star.hash == chosen.star_hash):
            card = None  # another version was activated after these were read
        return TeamDetails(name, chosen, len(states), card)

    async def versions(self, tenant: str, name: str) -> Sequence[TeamVersion]:
        """Return all versions of a team, oldest first. Raises NotFoundError."""
        async with self.teams.reading() as connection:
            found = await self.teams.versions(connection, TeamKey(tenant, name))
        if not found:
            raise NotFoundError("team", name, _REMEDY)
        return found

    async def star(self, caller: Principal, name: str, version: int | None) -> StarSpec:
        """Return the star of a version, default the active, else the newest one.

        That of a version that was never active is compiled as if the caller activated it now. Raises NotFoundError,
        TeamInvalidError.
        """
        async with self.teams.reading() as connection:
            key = TeamKey(caller.tenant, name)
            states = await self._states(connection, key)
            chosen = await self._version(connection, key, states, version or _active_or_newest(states))
            if chosen.star_hash:
                return (await self.stars.within(connection, caller.tenant, {chosen.star_hash}))[chosen.star_hash]
            world = await self._world(connection, (await self.epochs.current(connection)).manifest, caller)
        return await self._compiled(chosen, world, caller)

    async def _activate(
        self,
        connection: EngineConnection,
        action: str,
        caller: Principal,
        chosen: TeamVersion,
        world: TeamWorld,
        actor: Actor,
    ) -> ActivatedTeam:
        name, star = chosen.spec.name, await self._compiled(chosen, world, caller)
        pinned = partial(with_team, tenant=caller.tenant, star=star)
        activation = await self.epochs.activate(connection, actor, lambda one: pinned(_current(one)))
        if chosen.state != "active" or chosen.star_hash != star.hash:
            await self.stars.save(connection, caller.tenant, star)
            await self.teams.activate(
                connection, TeamKey(caller.tenant, name), chosen.version, star.hash, activated_by=actor.name
            )
            detail = {"tenant": caller.tenant, "version": chosen.version, "hash": chosen.hash, "star": star.hash}
            await record(connection, actor, AuditedChange(action, name, detail))
        unlimited = await asyncio.to_thread(self.compiler.compile, chosen.spec, world, creator=None, activator=None)
        return ActivatedTeam(
            name=name,
            version=chosen.version,
            star_hash=star.hash,
            epoch=activation.epoch.number,
            tools=star.tools,
            left_out=tuple(tool for tool in unlimited.tools if tool not in star.tools),
            used_in=await self._users(connection, TeamKey(caller.tenant, name), world),
        )

    async def _compiled(self, chosen: TeamVersion, world: TeamWorld, activator: Principal) -> StarSpec:
        grants = {"creator": chosen.creator.grant, "activator": activator.grant}
        return await asyncio.to_thread(self.compiler.compile, chosen.spec, world, **grants)

    async def _world(self, connection: EngineConnection, manifest: Manifest, caller: Principal) -> TeamWorld:
        """Return what teams of the caller can be made of."""
        pins = pinned_teams(manifest, caller.tenant)
        stars = await self.stars.within(connection, caller.tenant, frozenset(pins.values()))
        return TeamWorld(
            servers={
                name: {tool: pin.effect for tool, pin in entry.tools.items()}
                for name, entry in manifest.servers.items()
                if entry.seen_by(caller.tenant)
            },
            teams={name: stars[pin] for name, pin in pins.items()},
            agents=frozenset(pinned_agents(manifest, caller.tenant)),
            builtins=_current(manifest).builtins,
            grant=caller.grant,
        )

    async def _users(self, connection: EngineConnection, team: TeamKey, world: TeamWorld) -> tuple[str, ...]:
        """Return the active teams that have a team inside, at any depth, as `name@version`."""
        outer = [name for name, star in world.teams.items() if any(inner.name == team.name for inner in nested(star))]
        active = await self.teams.active_versions(connection, team.tenant, outer)
        return tuple(f"{name}@{version}" for name, version in sorted(active.items()))

    async def _states(self, connection: EngineConnection, key: TeamKey) -> Sequence[VersionState]:
        found = await self.teams.states(connection, key)
        if not found:
            raise NotFoundError("team", key.name, _REMEDY)
        return found

    async def _version(
        self, connection: EngineConnection, key: TeamKey, states: Sequence[VersionState], wanted: int
    ) -> TeamVersion:
        if not any(one.version == wanted for one in states):
            known = ", ".join(str(one.version) for one in states)
            remedy = f"It has the version{'s' if len(states) > 1 else ''} {known}."
            raise NotFoundError(f"version {wanted} of the team", key.name, remedy)
        return await self.teams.version(connection, key, wanted)


def _current(manifest: Manifest) -> Manifest:
    """Return the manifest with the builtins and prompts of this version of Starling."""
    return with_servers(manifest, manifest.servers)


def _active_or_newest(states: Sequence[VersionState]) -> int:
    return next((one.version for one in states if one.state == "active"), states[-1].version)
