"""From a request to a version of a team: designed, checked, compiled, proved, published, and activated if it may be."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from architect.compiler import compile_team
from architect.designer import Designer
from architect.proof import prove
from architect.report import built_text, gap_text, proof_text, refused_text
from architect.team_store import BuiltTeam, PublishedVersion, TeamStore
from architect.team_world import TeamWorld
from architect.teams.repository import TeamVersion
from starling.core.errors import ConflictError, NotFoundError, QuotaExceededError
from starling.core.events import Published
from starling.core.json import JsonObject
from starling.core.stars import StarSpec
from starling.core.team_building import BuildCase, BuildOutcome, BuildRequest, BuildRun
from starling.core.team_proofs import ProofReport
from starling.core.teams import TeamInvalidError, TeamSpec

_REFUSED: Final = (TeamInvalidError, ConflictError, NotFoundError, QuotaExceededError)


@dataclass(frozen=True, slots=True)
class Builder:
    """Builds and proves teams. `threshold` is the share of criteria that a proof has to meet, from 0 to 1."""

    store: TeamStore
    designer: Designer
    threshold: float

    async def build(self, request: BuildRequest, run: BuildRun) -> BuildOutcome:
        """Do what is asked for, or say why it can't be done. Raises what `run` raises."""
        try:
            if request.kind == "proof":
                return await self._prove_again(request, run)
            return await self._build(request, run)
        except _REFUSED as error:
            return BuildOutcome(str(error), done=False, code=error.code)

    async def _build(self, request: BuildRequest, run: BuildRun) -> BuildOutcome:
        caller = run.origin.caller
        world, base = await self.store.world(caller), None
        if request.kind == "version":
            base = (await self.store.version(caller, request.name or "", request.version)).spec
        designed = await self.designer.design(request, world, base, run)
        if designed.spec is None:
            return BuildOutcome(designed_text(designed), done=False, code=designed.code)
        star = _star(designed.spec, world, run)
        proof = await prove(designed.spec, star, (), run, self.threshold)
        published = await self._published(BuiltTeam(designed.spec, request.goal, proof, request.activate), run)
        if published.approval and request.activate:
            published, refused = await self._approved(published, proof, run)
        text = built_text(published, proof, designed.missing)
        return BuildOutcome(text, done=True)

    async def _prove_again(self, request: BuildRequest, run: BuildRun) -> BuildOutcome:
        caller = run.origin.caller
        team = await self.store.version(caller, request.name or "", request.version)
        star = _star(team.spec, await self.store.world(caller), run)
        proof = await prove(team.spec, star, request.cases, run, self.threshold)
        published = await self.store.add_proof(run.origin, team, proof)
        return BuildOutcome(proof_text(published, proof), done=True)
