"""Accepts builds and proofs of teams as runs of the agent `architect`."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from architect.checks import name_findings
from architect.proof import case_faults
from architect.repository import TeamKey
from starling.app.runs.acceptance import AcceptedRun, RunAcceptance, RunRequest
from starling.app.teams.activation import TeamActivation
from starling.core.errors import ForbiddenError, InvalidRequestError
from starling.core.json import storable_text
from starling.core.model_output.names import near_matches
from starling.core.principal import Principal, Scope
from starling.core.runs import RunConfig
from starling.core.teams.building import BuildCase, BuildRequest
from starling.core.teams.spec import TeamInvalidError

_CONFIG: Final = RunConfig(agent="architect")
_SAY: Final = "Say in words what the team is to do."


@dataclass(frozen=True, slots=True)
class BuildService:
    """Accepts builds as runs: a name is reserved from then on until the run ends."""

    acceptance: RunAcceptance
    activation: TeamActivation

    async def team(
        self, caller: Principal, build: BuildRequest, thread_id: str = "", idempotency_key: str | None = None
    ) -> AcceptedRun:
        """Accept the build of a new team; without a `thread_id`, on a thread of its own.

        The same request with the same idempotency key leads to the same run. Raises InvalidRequestError;
        TeamInvalidError for a name that no team may have; ConflictError for one that is taken, QuotaExceededError.
        """
        if not idempotency_key or not await self.acceptance.runs.begun(caller.tenant, idempotency_key):
            world = await self.activation.world_now(caller)
            if build.name and (findings := await asyncio.to_thread(name_findings, build.name, world)):
                raise TeamInvalidError(findings, f"A new team can't be named {build.name!r}.")
            async with self.activation.teams.reading() as connection:
                await self.activation.check_quota(connection, TeamKey(caller.tenant, build.name or ""))
            await self._check_request(caller, build)
        return await self._accept(caller, build.goal, build, thread_id, idempotency_key)

    async def version(
        self, caller: Principal, name: str, build: BuildRequest, thread_id: str = "", idempotency_key: str | None = None
    ) -> AcceptedRun:
        """Accept the build of a new version of a team.

        Raises InvalidRequestError, NotFoundError, ForbiddenError for another maker's team; ConflictError while a run
        builds or proves a version of this team.
        """
        await self._existing(caller, name, build.version)
        async with self.activation.teams.reading() as connection:
            await self.activation.teams.check_maker(connection, caller, name)
        await self._check_request(caller, build)
        named = build.model_copy(update={"name": name})
        return await self._accept(caller, build.goal, named, thread_id, idempotency_key)

    async def proof(
        self,
        caller: Principal,
        name: str,
        version: int | None,
        cases: Sequence[BuildCase] = (),
        idempotency_key: str | None = None,
    ) -> AcceptedRun:
        """Accept another proof of a version, default the active, else the newest one.

        Raises NotFoundError; TeamInvalidError for cases that show nothing, ConflictError while a run builds or proves a
        version of this team.
        """
        number = await self._existing(caller, name, version)
        build = BuildRequest(kind="proof", name=name, version=number, cases=tuple(cases))
        await self._check_request(caller, build)
        return await self._accept(caller, f"Prove the team {name}@{number}.", build, "", idempotency_key)

    async def _check_request(self, caller: Principal, build: BuildRequest) -> None:
        """Check the goal, and that what a build names is there. Raises InvalidRequestError, TeamInvalidError."""
        if build.kind != "proof" and ("\0" in build.goal or not any(map(str.isalnum, build.goal))):
            raise InvalidRequestError("The goal has no letter or digit, or it has a NUL character.", _SAY)
        if not (build.constraints.servers or build.cases):
            return
        world = await self.activation.world_now(caller)
        known = world.visible_servers()
        if unknown := [name for name in build.constraints.servers if name not in known]:
            near = near_matches(unknown[0], known)
            hint = f"Did you mean {' or '.join(near)}?" if near else "`starling server list` shows those there are."
            raise InvalidRequestError(f"There is no server {unknown[0]!r} that this key may call.", hint)
        if faults := await asyncio.to_thread(case_faults, build.cases, world):
            raise TeamInvalidError(faults, "The cases that were sent are wrong.")

    async def _existing(self, caller: Principal, name: str, version: int | None) -> int:
        """Return the number of the version that is meant. Raises NotFoundError."""
        async with self.activation.teams.reading() as connection:
            return (await self.activation.version(connection, TeamKey(caller.tenant, name), version)).version

    async def _accept(
        self, caller: Principal, text: str, build: BuildRequest, thread_id: str, idempotency_key: str | None
    ) -> AcceptedRun:
        if Scope.RUN not in caller.scopes:
            raise ForbiddenError(
                "A build is a run, and this key lacks the scope 'run'.", "Use a key with the scopes `run` and `teams`."
            )
        stored = build.model_copy(update={"goal": storable_text(build.goal).strip()})
        request = RunRequest(text, thread_id, config=_CONFIG, build=stored)
        return await self.acceptance.accept(caller, request, idempotency_key)
