"""Activation of a version of a team, as part of a transaction that holds the lock of the registry."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from architect.checks import NOTES, checked
from architect.compiler import compile_team
from architect.repository import TeamKey, TeamRepository, TeamVersion, VersionState
from architect.team_world import TeamWorld, nested
from brain.registry.custom_agents import pinned_agents
from brain.registry.manifest import Manifest
from brain.registry.repository import AgentRepository, EpochRepository, StarRepository
from brain.registry.service import with_servers
from brain.registry.team_cards import pinned_teams, with_team
from starling.core.errors import ConflictError, NotFoundError, QuotaExceededError
from starling.core.principal import Principal
from starling.core.settings.schema import Limits
from starling.core.teams.proofs import outdated
from starling.core.teams.spec import Finding, TeamInvalidError
from starling.core.teams.stars import StarLimits, StarSpec
from starling.infra.postgres.audit import Actor, AuditedChange, record
from starling.infra.postgres.engine import EngineConnection

REMEDY: Final = "`starling team list` shows your teams."


@dataclass(frozen=True, slots=True)
class ActivatedTeam:
    """The active version of a team, and the first epoch that has it.

    `left_out` are the tools that its spec asks for and that the key of its creator or yours may not call. `used_in` are
    active teams, as `name@version`, with this team inside: they keep it as it was when they were activated.
    `outdated_tools` are those of its proof that changed since, or are gone; `not_judged` says what an unproven version
    leaves unshown, or that it was never tried. `notes` are as in a check.
    """

    name: str
    version: int
    star: str
    epoch: int
    tools: tuple[str, ...]
    left_out: tuple[str, ...]
    used_in: tuple[str, ...]
    outdated_tools: tuple[str, ...] = ()
    not_judged: Sequence[str] = ()
    notes: Sequence[Finding] = ()


@dataclass(frozen=True, slots=True)
class LockedRegistry:
    """The registry in a transaction that holds its lock, and what `caller` can make teams of."""

    connection: EngineConnection
    manifest: Manifest
    world: TeamWorld
    caller: Principal


@dataclass(frozen=True, slots=True)
class TeamActivation:
    """Activates versions of teams."""

    epochs: EpochRepository
    teams: TeamRepository
    stars: StarRepository
    agents: AgentRepository
    limits: Limits

    @asynccontextmanager
    async def locked(self, caller: Principal) -> AsyncGenerator[LockedRegistry]:
        """Lock the registry until the block ends; what it changed is committed where the block ends well."""
        async with self.teams.changing() as connection:
            manifest = (await self.epochs.begin(connection)).manifest
            yield LockedRegistry(connection, manifest, await self.world(connection, manifest, caller), caller)

    async def activate(
        self, registry: LockedRegistry, action: str, chosen: TeamVersion, actor: Actor, **detail: object
    ) -> ActivatedTeam:
        """Compile a version for runs accepted from now on; the active one is superseded.

        Raises TeamInvalidError; ConflictError if it was built and its last proof failed, QuotaExceededError.
        """
        connection, tenant = registry.connection, registry.caller.tenant
        key = TeamKey(tenant, chosen.spec.name)
        if chosen.built_by and chosen.proof and chosen.proof.state == "failed":
            shown = f"{key.name}@{chosen.version}"
            remedy = f"`starling team prove {shown}` tries it again; `starling team build` can change it."
            raise ConflictError(f"The last proof of {shown} failed.", remedy)
        if chosen.state == "archived":
            await self.check_quota(connection, key)
        try:
            star = await self.compiled(chosen, registry.world, registry.caller)
        except TeamInvalidError as error:
            raise TeamInvalidError(error.findings, f"{key.name}@{chosen.version} can't be activated now.") from None
        pinned = partial(with_team, tenant=tenant, star=star)
        await self.epochs.activate(connection, actor, lambda one: pinned(current(one)))
        if chosen.state != "active" or chosen.star != star.hash:
            await self.stars.save(connection, tenant, star)
            await self.teams.activate(connection, key, chosen.version, star.hash, activated_by=actor.name)
            made = {"tenant": tenant, "version": chosen.version, "hash": chosen.hash, "star": star.hash}
            await record(connection, actor, AuditedChange(action, key.name, made | detail))
        unproven = bool(chosen.proof) and chosen.proof.state == "unproven"
        proof = await self.teams.proof(connection, key, chosen.version) if unproven else None
        doubts = () if chosen.proof else (f"{key.name}@{chosen.version} was never tried: it has no proof.",)
        unlimited = await asyncio.to_thread(compile_team, chosen.spec, registry.world, creator=None, activator=None)
        return ActivatedTeam(
            name=key.name,
            version=chosen.version,
            star=star.hash,
            epoch=await self.epochs.first_with_team(connection, f"{tenant}/{key.name}"),
            tools=star.tools,
            left_out=tuple(tool for tool in unlimited.tools if tool not in star.tools),
            used_in=await self.users(connection, key, registry.world),
            outdated_tools=outdated_tools(chosen, registry.manifest),
            not_judged=proof.not_judged if proof else doubts,
            notes=checked(chosen.spec, registry.world, NOTES),
        )

    async def compiled(self, chosen: TeamVersion, world: TeamWorld, activator: Principal) -> StarSpec:
        """Return the star of a version. Raises TeamInvalidError."""
        grants = {"creator": chosen.creator.grant, "activator": activator.grant}
        return await asyncio.to_thread(compile_team, chosen.spec, world, **grants)

    async def world(self, connection: EngineConnection, manifest: Manifest, caller: Principal) -> TeamWorld:
        """Return what teams of the caller can be made of."""
        pins = pinned_teams(manifest, caller.tenant)
        stars = await self.stars.within(connection, caller.tenant, frozenset(pins.values()))
        agents = frozenset(pinned_agents(manifest, caller.tenant))
        newest = await self.teams.newest(connection, caller.tenant)
        return TeamWorld(
            servers={
                name: {tool: pin.effect for tool, pin in entry.tools.items()}
                for name, entry in manifest.servers.items()
                if entry.seen_by(caller.tenant)
            },
            teams={name: stars[pin] for name, pin in pins.items()},
            inactive={name: one.state for name, one in newest.items() if one.state != "active"},
            agents=agents,
            archived_agents=frozenset(await self.agents.names(connection, caller.tenant)) - agents,
            builtins=current(manifest).builtins,
            grant=caller.grant,
            limits=StarLimits(
                seconds=self.limits.run_seconds,
                iterations=self.limits.supervisor_calls,
                tokens=self.limits.run_tokens or None,
            ),
        )

    async def world_now(self, caller: Principal) -> TeamWorld:
        """Return what teams of the caller can be made of in the active epoch."""
        async with self.teams.reading() as connection:
            return await self.world(connection, (await self.epochs.current(connection)).manifest, caller)

    async def users(self, connection: EngineConnection, team: TeamKey, world: TeamWorld) -> tuple[str, ...]:
        """Return the active teams that have a team inside, at any depth, as `name@version`."""
        outer = {name for name, star in world.teams.items() if any(inner.name == team.name for inner in nested(star))}
        newest = await self.teams.newest(connection, team.tenant)
        return tuple(f"{name}@{one.version}" for name, one in sorted(newest.items()) if name in outer)

    async def states(self, connection: EngineConnection, key: TeamKey) -> Sequence[VersionState]:
        """Return the state of every version of a team, oldest first. Raises NotFoundError."""
        found = await self.teams.states(connection, key)
        if not found:
            raise NotFoundError("team", key.name, REMEDY)
        return found

    async def version(self, connection: EngineConnection, key: TeamKey, wanted: int | None) -> TeamVersion:
        """Return a version of a team, default the active, else the newest one. Raises NotFoundError."""
        states = await self.states(connection, key)
        number = wanted or active_or_newest(states)
        if not any(one.version == number for one in states):
            known = ", ".join(str(one.version) for one in states)
            remedy = f"It has the version{'s' if len(states) > 1 else ''} {known}."
            raise NotFoundError(f"version {number} of the team", key.name, remedy)
        return await self.teams.version(connection, key, number)

    async def check_quota(self, connection: EngineConnection, team: TeamKey) -> None:
        """Check that the tenant may have a team of this name. Raises QuotaExceededError."""
        newest, quota = await self.teams.newest(connection, team.tenant), self.limits.teams_per_tenant
        kept = {name for name, one in newest.items() if one.state != "archived"}
        if team.name not in kept and len(kept) >= quota:
            remedy = "Archive one that isn't needed, or raise the setting `limits.teams_per_tenant`."
            raise QuotaExceededError("teams", quota, remedy)


def active_or_newest(states: Sequence[VersionState]) -> int:
    """Return the number of the active version, else of the newest one."""
    return next((one.version for one in states if one.state == "active"), states[-1].version)


def current(manifest: Manifest) -> Manifest:
    """Return the manifest with the builtins and prompts of this version of Starling."""
    return with_servers(manifest, manifest.servers)


def outdated_tools(version: TeamVersion, manifest: Manifest) -> tuple[str, ...]:
    """Return those tools of the proof of a version, if it has one, that are not as they were proved."""
    return tuple(outdated(version.proof.tools, manifest.tool_hashes())) if version.proof else ()
