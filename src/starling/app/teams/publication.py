"""What builds store: versions with their proofs, activated in the same transaction where they may be."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from architect.checks import checked, free_name
from architect.repository import Creator, TeamKey, TeamVersion
from architect.team_store import BuiltTeam, PublishedVersion
from architect.team_world import TeamWorld
from brain.registry.cards import ARCHITECT
from brain.registry.manifest import Manifest
from starling.app.access.kill_switches import KnownHalts
from starling.app.teams.activation import LockedRegistry, TeamActivation, outdated_tools
from starling.core.errors import ConflictError, ForbiddenError
from starling.core.json import storable_text
from starling.core.principal import Principal, Scope
from starling.core.teams.building import Approval, BuildOrigin, BuildRequest
from starling.core.teams.proofs import LOWEST_FIRST, ProofReport
from starling.core.teams.spec import TeamInvalidError, TeamSpec
from starling.core.teams.stars import StarSpec
from starling.core.tool_calls import Effect
from starling.infra.postgres.audit import LOCAL, Actor, AuditedChange, record
from starling.infra.postgres.engine import EngineConnection
from starling.infra.postgres.keys import KeyRepository
from starling.infra.postgres.kill_switches import halted_within
from starling.infra.postgres.runs.builds import held_build, reserved_names

_ORIGIN: Final = "architect"  # of audited changes
_GOAL_CHARS: Final = 500  # of a goal in the audit
_NEEDED: Final = frozenset({Scope.RUN, Scope.TEAMS})
_REMEDY: Final = "A key with the scopes `run` and `teams` can repeat the request."


@dataclass(frozen=True, slots=True)
class TeamPublication:
    """The teams of tenants as builds use them: `architect.team_store.TeamStore` in Postgres."""

    activation: TeamActivation
    keys: KeyRepository

    async def world(self, caller: Principal) -> TeamWorld:
        return await self.activation.world_now(caller)

    async def version(self, caller: Principal, name: str, number: int | None) -> TeamVersion:
        async with self.activation.teams.reading() as connection:
            return await self.activation.version(connection, TeamKey(caller.tenant, name), number)

    async def publish(self, origin: BuildOrigin, built: BuiltTeam) -> PublishedVersion:
        """Store a built team once, and activate it if that is wanted and its proof suffices.

        A new team whose name was taken gets a suffix, unless its run was asked for that name. Raises LeaseLostError,
        TeamInvalidError, QuotaExceededError.
        """
        async with self._locked(origin) as (registry, build):
            stored = await self.activation.teams.built(
                registry.connection, origin.caller.tenant, origin.run_id, origin.path
            )
            if stored is None:
                stored = await self._store(registry, origin, built, build)
            return await self._settled(registry, origin, stored, activate=built.activate)

    async def add_proof(
        self, origin: BuildOrigin, team: TeamVersion, proof: ProofReport
    ) -> tuple[PublishedVersion, bool]:
        """Store another proof, and the state that it gives unless the version was activated or archived."""
        key = TeamKey(origin.caller.tenant, team.spec.name)
        async with self._locked(origin) as (registry, build):
            stored = await self.activation.teams.version(registry.connection, key, team.version)
            counts = _counts(proof, stored, origin.caller, build)
            if counts and (
                proved := await self.activation.teams.add_proof(registry.connection, key, team.version, proof)
            ):
                await self._record_proof(registry, origin, proved)
                stored = proved
            return await self._settled(registry, origin, stored, activate=False), counts

    async def activate(self, origin: BuildOrigin, published: PublishedVersion, approval: Approval) -> PublishedVersion:
        """Activate a version that an admin approved, with the tools that its creator and that admin both may call.

        Raises LeaseLostError, TeamInvalidError; ConflictError if it was not approved by a key that may still do so, or
        if the version is not as it was when it was approved.
        """
        key = TeamKey(origin.caller.tenant, published.name)
        async with self._locked(origin) as (registry, _):
            approver = await _approver_of(registry.connection, self.keys, key.tenant, approval)
            stored = await self.activation.teams.version(registry.connection, key, published.version)
            now = await self._settled(registry, origin, stored, activate=False)
            if now.state == "active":
                return now
            if approver is None:
                raise ConflictError(
                    f"No key that may still do so approved {published.name}@{published.version}.",
                    "A key with the scope `admin` activates it: `starling team activate`.",
                )
            _check_unchanged(stored, now, published)
            actor = Actor(key.tenant, approval.by, _ORIGIN)
            detail = {"run_id": origin.run_id, "note": approval.note}
            theirs = replace(registry, caller=approver, world=replace(registry.world, grant=approver.grant))
            done = await self.activation.activate(theirs, "team.activate", stored, actor, **detail)
            return _published(stored, done.tools, epoch=done.epoch)

    @asynccontextmanager
    async def _locked(self, origin: BuildOrigin) -> AsyncGenerator[tuple[LockedRegistry, BuildRequest | None]]:
        """Lock the registry for a change by a build, with what its run was asked to build.

        Raises LeaseLostError, RunCancelledError, and ForbiddenError where the caller may not change teams any more.
        """
        async with self.activation.locked(origin.caller) as registry:
            build = await held_build(registry.connection, origin)
            await _check_caller(registry.connection, self.keys, origin)
            yield registry, build

    async def _store(
        self, registry: LockedRegistry, origin: BuildOrigin, built: BuiltTeam, build: BuildRequest | None
    ) -> TeamVersion:
        connection, tenant, caller = registry.connection, origin.caller.tenant, origin.caller
        spec, proof = await self._named(registry, origin, built, build)
        if findings := await asyncio.to_thread(checked, spec, registry.world):
            raise TeamInvalidError(findings)
        await self.activation.check_quota(connection, TeamKey(tenant, spec.name))
        creator = Creator(caller.maker, caller.grant)
        goal = storable_text(built.goal)
        stored = await self.activation.teams.add(connection, tenant, spec, creator, (goal, origin, proof))
        detail = {"goal": goal[:_GOAL_CHARS], "hash": stored.hash}
        await _record(registry, origin, "team.build", stored, detail)
        await self._record_proof(registry, origin, stored)
        return stored

    async def _named(
        self, registry: LockedRegistry, origin: BuildOrigin, built: BuiltTeam, build: BuildRequest | None
    ) -> tuple[TeamSpec, ProofReport]:
        """Return the spec and its proof under the name that the team gets."""
        spec, tenant = built.spec, origin.caller.tenant
        if build and build.name:  # reserved for this run
            return spec, built.proof
        teams = await self.activation.teams.newest(registry.connection, tenant)
        reserved = await reserved_names(registry.connection, tenant, origin.run_id)
        others = replace(registry.world, agents={*registry.world.agents, *teams, *reserved})
        name = await asyncio.to_thread(free_name, spec.name, others) or spec.name
        if name == spec.name:
            return spec, built.proof
        renamed = spec.model_copy(update={"name": name})
        return renamed, built.proof.model_copy(update={"spec_hash": await asyncio.to_thread(lambda: renamed.hash)})

    async def _settled(
        self, registry: LockedRegistry, origin: BuildOrigin, stored: TeamVersion, *, activate: bool
    ) -> PublishedVersion:
        """Return a stored version as it is published, activated if that is wanted and needs no approval."""
        if stored.state == "active":
            return await self._active(registry, stored)
        star = await self.activation.compiled(stored, registry.world, origin.caller)
        reason = _approval_reason(stored, star, registry.manifest)
        if not activate or reason or stored.state != "proven":
            return _published(stored, star.tools, approval=reason if stored.state in ("proven", "unproven") else "")
        actor = Actor(origin.caller.tenant, origin.caller.key_id or LOCAL, _ORIGIN)
        done = await self.activation.activate(registry, "team.activate", stored, actor, run_id=origin.run_id)
        return _published(stored, star.tools, epoch=done.epoch)

    async def _active(self, registry: LockedRegistry, stored: TeamVersion) -> PublishedVersion:
        """Return an active version, with the tools of its star."""
        connection, tenant, pin = registry.connection, registry.caller.tenant, stored.star or ""
        star = (await self.activation.stars.within(connection, tenant, {pin}))[pin]
        epoch = await self.activation.epochs.first_with_team(connection, f"{tenant}/{stored.spec.name}")
        return _published(stored, star.tools, epoch=epoch)

    async def _record_proof(self, registry: LockedRegistry, origin: BuildOrigin, stored: TeamVersion) -> None:
        if stored.proof:
            detail = {"state": stored.proof.state, "score": stored.proof.score}
            await _record(registry, origin, "team.prove", stored, detail)


async def _check_caller(connection: EngineConnection, keys: KeyRepository, origin: BuildOrigin) -> None:
    """Check that the caller of a build may still change teams, and that no kill switch stops the build.

    Part of the transaction that makes the change. Raises ForbiddenError.
    """
    caller, halts = origin.caller, KnownHalts(await halted_within(connection))
    agents = halts.named("agent", caller.tenant)
    if reason := halts.everything(caller.tenant, caller.key_id) or agents.get(ARCHITECT.name, ""):
        raise ForbiddenError(reason, _REMEDY)
    if not caller.key_id:  # the local user
        return
    key = await keys.find_within(connection, caller.key_id)
    if key is None or key.tenant != caller.tenant or key.state != "active":
        raise ForbiddenError(f"The key {caller.key_id}, which this run was requested with, has expired.", _REMEDY)
    if missing := _NEEDED.difference(key.scopes):
        raise ForbiddenError(f"The key {caller.key_id} lacks the scope {', '.join(sorted(missing))}.", _REMEDY)


async def _approver_of(
    connection: EngineConnection, keys: KeyRepository, tenant: str, approval: Approval
) -> Principal | None:
    """Return who approved, with what may be called now; None for one who did not, or may not any more."""
    if not approval.approved:
        return None
    if approval.by == LOCAL:
        return Principal(tenant, "", frozenset(Scope))
    key = await keys.find_within(connection, approval.by)
    if key is None or key.tenant != tenant or key.state != "active" or Scope.ADMIN not in key.scopes:
        return None
    return key.principal


def _counts(proof: ProofReport, stored: TeamVersion, caller: Principal, build: BuildRequest | None) -> bool:
    """Return whether a proof replaces a version's last one: cases of another key than its creator's can't lower it."""
    if stored.proof is None or Scope.ADMIN in caller.scopes or stored.creator.name == caller.maker:
        return True
    is_lower = LOWEST_FIRST.index(proof.state) < LOWEST_FIRST.index(stored.proof.state)
    return not (is_lower and build and build.cases)


def _approval_reason(stored: TeamVersion, star: StarSpec, manifest: Manifest) -> str:
    """Return why only an admin may activate a version, empty where its proof suffices."""
    reasons: list[str] = []
    if stored.proof is None or stored.proof.state != "proven":
        reasons.append("It is not proven.")
    if changed := outdated_tools(stored, manifest):
        reasons.append(f"These tools changed since it was proved: {', '.join(changed)}.")
    if unproved := [tool for tool in star.tools if stored.proof and tool not in stored.proof.tools]:
        reasons.append(f"These tools were not there when it was proved: {', '.join(unproved)}.")
    if unsafe := [tool for tool in star.tools if _effect(manifest, tool) is Effect.UNSAFE]:
        reasons.append(f"These tools may change something that can't be taken back: {', '.join(unsafe)}.")
    return " ".join(reasons)


def _effect(manifest: Manifest, tool: str) -> Effect:
    """Return the effect of a tool; one that is gone counts as unsafe."""
    server, _, name = tool.partition(".")
    pin = manifest.servers[server].tools.get(name) if server in manifest.servers else None
    return pin.effect if pin else Effect.UNSAFE


def _check_unchanged(stored: TeamVersion, now: PublishedVersion, approved: PublishedVersion) -> None:
    """Check that a version is still what an admin was shown. Raises ConflictError."""
    reason = now.approval if now.approval != approved.approval else ""
    if stored.state not in ("draft", "proven", "unproven"):
        reason = f"It is {stored.state} now."
    elif new := [tool for tool in now.tools if tool not in approved.tools]:
        reason = f"It may call tools that were not approved: {', '.join(new)}."
    if reason:
        shown = f"{now.name}@{now.version}"
        remedy = f"`starling team activate {shown}` activates it as it is now."
        raise ConflictError(f"{shown} is not as it was when it was approved. {reason}", remedy)


def _published(
    stored: TeamVersion, tools: tuple[str, ...], *, epoch: int | None = None, approval: str = ""
) -> PublishedVersion:
    state = "active" if epoch is not None else stored.proof.version_state if stored.proof else "draft"
    return PublishedVersion(
        name=stored.spec.name,
        version=stored.version,
        state=state,
        hash=stored.hash,
        tools=tools,
        epoch=epoch,
        approval=approval,
    )


async def _record(
    registry: LockedRegistry, origin: BuildOrigin, action: str, stored: TeamVersion, detail: Mapping[str, object]
) -> None:
    caller = origin.caller
    made = {"tenant": caller.tenant, "version": stored.version, "run_id": origin.run_id, **detail}
    actor = Actor(caller.tenant, caller.key_id or LOCAL, _ORIGIN)
    await record(registry.connection, actor, AuditedChange(action, stored.spec.name, made))
