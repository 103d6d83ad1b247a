"""Imports, activates, rolls back and archives teams; each change with its audit entry."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from architect.checks import NOTES, checked
from architect.repository import Creator, TeamKey, TeamRepository, TeamState, TeamSummary, TeamVersion
from architect.spec_format import spec_diff
from brain.registry.cards import AgentCard, Roster, degraded_members
from brain.registry.repository import EpochRepository, StarRepository
from brain.registry.team_cards import without_team
from starling.app.teams.activation import (
    REMEDY,
    ActivatedTeam,
    TeamActivation,
    active_or_newest,
    current,
    outdated_tools,
)
from starling.core.errors import ConflictError, NotFoundError
from starling.core.principal import Principal
from starling.core.teams.proofs import ProofReport, outdated
from starling.core.teams.spec import Finding, TeamInvalidError, TeamMember, TeamSpec
from starling.core.teams.stars import StarSpec
from starling.infra.postgres.audit import Actor, AuditedChange, record
from starling.infra.postgres.runs.builds import check_not_being_built

_HISTORY: Final = 500  # changes


@dataclass(frozen=True, slots=True)
class TeamList:
    """All teams of your tenant, by name."""

    epoch: int
    teams: Sequence[TeamSummary]


@dataclass(frozen=True, slots=True)
class MemberState:
    """A member of a team: of a server, of a team, or of neither. `reason` says why it can't work now.

    The tools of an active team are those that your key may call; else those that the spec names.
    """

    name: str
    role: str
    server: str | None
    team: str | None
    tools: tuple[str, ...]
    state: Literal["ready", "degraded"] = "ready"
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamDetails(TeamSummary):
    """A team with its members. `used_in` are the active teams, as `name@version`, that have it inside."""

    members: tuple[MemberState, ...]
    used_in: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ImportedTeam:
    """A stored version of a team. Not `created`: the same spec is its newest version already. `notes` as in a check."""

    name: str
    version: int
    state: TeamState
    hash: str
    created: bool
    notes: Sequence[Finding] = ()


@dataclass(frozen=True, slots=True)
class TeamChange:
    """A change of a team: `by` is the id of a key or `local`, `detail` depends on the action."""

    at: datetime
    action: str
    by: str
    origin: str
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TeamHistory:
    """The latest changes of a team, oldest first."""

    name: str
    changes: tuple[TeamChange, ...]


@dataclass(frozen=True, slots=True)
class TeamDiff:
    """How the spec of a version differs from that of another one: as a unified diff of YAML, and by paths."""

    name: str
    from_: Annotated[int, Field(alias="from")]
    to: int
    diff: str
    paths: tuple[str, ...]


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
    activation: TeamActivation

    async def check(self, caller: Principal, spec: TeamSpec) -> tuple[Sequence[Finding], Sequence[Finding]]:
        """Return what is wrong with a spec for the caller, and the limits in it that the platform's own override."""
        world = await self.activation.world_now(caller)
        return await asyncio.to_thread(lambda: (checked(spec, world), checked(spec, world, NOTES)))

    async def add(self, caller: Principal, name: str, spec: TeamSpec, actor: Actor) -> ImportedTeam:
        """Store a spec as a draft version of the team `name`.

        A spec that equals the newest version, of a caller with the same grant, is not stored again. It is checked
        before the lock of the registry is taken; an activation checks it again. Raises TeamInvalidError; ForbiddenError
        for another maker's team; ConflictError while a run builds a team or a version of this name, QuotaExceededError.
        """
        if spec.name != name:
            reason = f"The spec is of {spec.name!r} and was sent for {name!r}."
            raise TeamInvalidError([Finding("name", "other_name", reason, "Send it to the team of its name.")])
        findings, notes = await self.check(caller, spec)
        if findings:
            raise TeamInvalidError(findings)
        key, spec_hash = TeamKey(caller.tenant, name), await asyncio.to_thread(lambda: spec.hash)
        async with self.teams.changing() as connection:
            await self.epochs.begin(connection)
            await self.teams.check_maker(connection, caller, name)
            states = await self.teams.states(connection, key)
            if states and states[-1].state != "archived" and states[-1].hash == spec_hash:
                newest = await self.teams.version(connection, key, states[-1].version)
                if newest.creator.grant == caller.grant:
                    return ImportedTeam(name, newest.version, newest.state, newest.hash, False, notes)
            await check_not_being_built(connection, caller.tenant, name)
            await self.activation.check_quota(connection, key)
            stored = await self.teams.add(connection, caller.tenant, spec, Creator(caller.maker, caller.grant))
            detail = {"tenant": caller.tenant, "version": stored.version, "hash": stored.hash}
            await record(connection, actor, AuditedChange("team.import", name, detail))
            return ImportedTeam(name, stored.version, stored.state, stored.hash, True, notes)

    async def activate(self, caller: Principal, name: str, version: int | None, actor: Actor) -> ActivatedTeam:
        """Compile a version, default the newest, for runs accepted from now on; the active one is superseded.

        Raises NotFoundError, TeamInvalidError, QuotaExceededError; ConflictError if it was built and its last proof
        failed.
        """
        key = TeamKey(caller.tenant, name)
        async with self.activation.locked(caller) as registry:
            newest = (await self.activation.states(registry.connection, key))[-1].version
            chosen = await self.activation.version(registry.connection, key, version or newest)
            return await self.activation.activate(registry, "team.activate", chosen, actor)

    async def rollback(self, caller: Principal, name: str, actor: Actor) -> ActivatedTeam:
        """Activate the highest version before the active one that was active too, whatever was active in between.

        Versions from before the team was archived don't count. Raises NotFoundError, ConflictError.
        """
        key = TeamKey(caller.tenant, name)
        async with self.activation.locked(caller) as registry:
            states = await self.activation.states(registry.connection, key)
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
            chosen = await self.teams.version(registry.connection, key, before[-1].version)
            return await self.activation.activate(registry, "team.rollback", chosen, actor)

    async def archive(self, caller: Principal, name: str, actor: Actor) -> ArchivedTeam:
        """Remove a team for runs accepted from now on; its versions are kept. Raises NotFoundError, ConflictError."""
        key = TeamKey(caller.tenant, name)
        async with self.activation.locked(caller) as registry:
            connection = registry.connection
            if all(one.state == "archived" for one in await self.activation.states(connection, key)):
                raise ConflictError(f"The team {name!r} is archived already.")
            await self.teams.archive(connection, key)
            gone = partial(without_team, tenant=caller.tenant, name=name)
            activation = await self.epochs.activate(connection, actor, lambda one: gone(current(one)))
            await record(connection, actor, AuditedChange("team.archive", name, {"tenant": caller.tenant}))
            used_in = await self.activation.users(connection, key, registry.world)
        return ArchivedTeam(name, activation.epoch.number, used_in)

    async def list(self, caller: Principal) -> TeamList:
        """Return all teams of the caller's tenant, by name."""
        teams = await self.teams.summaries(caller.tenant)
        if any(team.proved for team in teams):
            async with self.teams.reading() as connection:
                pins = (await self.epochs.current(connection)).manifest.tool_hashes()
            teams = [replace(team, outdated_tools=tuple(outdated(team.proved, pins))) for team in teams]
        if not any(team.state == "active" for team in teams):
            return TeamList(await self.epochs.active_number() or 0, teams)
        epoch, roster = await self.roster(caller)
        active = {team.name: roster.get(team.name) for team in teams if team.state == "active"}
        return TeamList(epoch, [replace(team, **_faults(active.get(team.name))) for team in teams])

    async def show(self, caller: Principal, name: str) -> TeamDetails:
        """Return a team. Raises NotFoundError."""
        key = TeamKey(caller.tenant, name)
        async with self.teams.reading() as connection:
            states = await self.activation.states(connection, key)
            chosen = await self.teams.version(connection, key, active_or_newest(states))
            manifest = (await self.epochs.current(connection)).manifest
            world = await self.activation.world(connection, manifest, caller)
            used_in = await self.activation.users(connection, key, world)
        card = (await self.roster(caller))[1].get(name) if chosen.state == "active" else None
        if card and not (card.star and card.star.hash == chosen.star):
            card = None  # another version was activated after these were read
        return TeamDetails(
            name=name,
            purpose=chosen.spec.purpose,
            state=chosen.state,
            version=chosen.version,
            versions=len(states),
            created_at=chosen.created_at,
            activated_at=chosen.activated_at,
            **_faults(card),
            outdated_tools=outdated_tools(chosen, manifest),
            members=tuple(_member(member, card) for member in chosen.spec.members),
            used_in=used_in,
        )

    async def versions(self, tenant: str, name: str) -> Sequence[TeamVersion]:
        """Return all versions of a team, oldest first. Raises NotFoundError."""
        async with self.teams.reading() as connection:
            found = await self.teams.versions(connection, TeamKey(tenant, name))
            if not found:
                raise NotFoundError("team", name, REMEDY)
            manifest = (await self.epochs.current(connection)).manifest
        return [replace(one, outdated_tools=outdated_tools(one, manifest)) for one in found]

    async def proof(self, tenant: str, name: str, version: int) -> ProofReport:
        """Return the report of the last proof of a version. Raises NotFoundError."""
        key = TeamKey(tenant, name)
        async with self.teams.reading() as connection:
            await self.activation.version(connection, key, version)
            found = await self.teams.proof(connection, key, version)
        if found is None:
            shown = f"{name}@{version}"
            raise NotFoundError("proof of the team", shown, f"`starling team prove {shown}` proves it.")
        return found

    async def history(self, tenant: str, name: str) -> TeamHistory:
        """Return the latest changes of a team, oldest first. Raises NotFoundError."""
        key = TeamKey(tenant, name)
        async with self.teams.reading() as connection:
            await self.activation.states(connection, key)
        changes: list[TeamChange] = []
        for entry in reversed(await self.teams.changes(key, limit=_HISTORY)):
            detail = {field: value for field, value in entry.detail.items() if field != "tenant"}
            changes.append(TeamChange(entry.at, entry.action, entry.by, entry.origin, detail))
        return TeamHistory(name, tuple(changes))

    async def diff(self, tenant: str, name: str, before: int | None, after: int | None) -> TeamDiff:
        """Compare two versions, by default the newest with the one before it. Raises NotFoundError."""
        key = TeamKey(tenant, name)
        async with self.teams.reading() as connection:
            states = await self.activation.states(connection, key)
            newer = after or states[-1].version
            older = before or newer - 1
            new = await self.activation.version(connection, key, newer)
            if not older:
                remedy = f"{name} has {len(states)} version{'s' if len(states) > 1 else ''}; a comparison needs two."
                raise NotFoundError(f"version before {newer} of the team", name, remedy)
            old = await self.activation.version(connection, key, older)
        shown = f"{name}@{older}", f"{name}@{newer}"
        text, paths = await asyncio.to_thread(lambda: spec_diff(old.spec, new.spec, names=shown))
        return TeamDiff(name, older, newer, text, paths)

    async def star(self, caller: Principal, name: str, version: int | None) -> StarSpec:
        """Return the star of a version, default the active, else the newest one.

        That of a version that was never active is compiled as if the caller activated it now. Raises NotFoundError,
        TeamInvalidError.
        """
        async with self.teams.reading() as connection:
            key = TeamKey(caller.tenant, name)
            chosen = await self.activation.version(connection, key, version)
            if chosen.star:
                return (await self.stars.within(connection, caller.tenant, {chosen.star}))[chosen.star]
            manifest = (await self.epochs.current(connection)).manifest
            world = await self.activation.world(connection, manifest, caller)
        return await self.activation.compiled(chosen, world, caller)

    async def stored_star(self, caller: Principal, name: str, version: int) -> str:
        """Store the star of a version, also of one that was never active, and return its hash. Raises as `star`."""
        star = await self.star(caller, name, version)
        async with self.teams.changing() as connection:
            await self.stars.save(connection, caller.tenant, star)
        return star.hash


def _faults(card: AgentCard | None) -> dict[str, Any]:
    return {"reason": card.degraded, "degraded_members": degraded_members(card)} if card else {}


def _member(member: TeamMember, card: AgentCard | None) -> MemberState:
    bound = card.members[member.name] if card else None
    if bound is None:
        return MemberState(member.name, member.role, member.server, member.team, member.tools)
    tools = tuple(tool.full_name for tool in bound.tools)
    state = "degraded" if bound.degraded else "ready"
    return MemberState(member.name, member.role, member.server, member.team, tools, state, bound.degraded)
