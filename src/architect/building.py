"""From a request to a version of a team: designed, checked, compiled, proved, published, and activated if it may be."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final, cast

from pydantic import TypeAdapter

from architect.compiler import compile_team
from architect.design.designer import Designed, design_team
from architect.proof import case_findings, prove
from architect.report import built_text, gap_text, proof_text, refused_text, untried_text
from architect.team_store import BuiltTeam, PublishedVersion, TeamStore
from architect.team_world import TeamWorld
from starling.core.errors import ConflictError, ForbiddenError, NotFoundError, QuotaExceededError
from starling.core.events.build_events import Published
from starling.core.json import JsonObject
from starling.core.teams.building import BuildCase, BuildOutcome, BuildRequest, BuildRun
from starling.core.teams.proofs import PartReport, ProofReport
from starling.core.teams.spec import TeamInvalidError, TeamSpec
from starling.core.teams.stars import StarSpec

_COMPILED: Final = "compiled"  # the step after which a star is tried
_PUBLISHED: Final = TypeAdapter(PublishedVersion)
_REFUSED: Final = (TeamInvalidError, ConflictError, ForbiddenError, NotFoundError, QuotaExceededError)


@dataclass(frozen=True, slots=True)
class Builder:
    """Builds and proves teams.

    What is stored is stored once, and what was asked, tried and reported before is not repeated when a run is resumed.
    """

    store: TeamStore

    async def build(self, request: BuildRequest, run: BuildRun) -> BuildOutcome:
        """Do what is asked for, or say why it can't be done. Raises what `run` raises."""
        try:
            if request.kind == "proof":
                return await self._prove_again(request, run)
            return await self._build(request, run)
        except _REFUSED as error:
            return BuildOutcome(str(error), done=False, code=error.code)

    async def _build(self, request: BuildRequest, run: BuildRun) -> BuildOutcome:
        world = await self.store.world(run.origin.caller)
        base, before = None, list[PartReport]()
        if request.kind == "version":  # a resumed build changes the same version, though its own may be stored by now
            changed = run.recorded("base")
            number = cast("int", changed["version"]) if changed else request.version
            found = await self.store.version(run.origin.caller, request.name or "", number)
            if changed is None:
                run.record("base", {"version": found.version})
            base, before = found.spec, list(found.proof.parts if found.proof else ())
        designed = await design_team(request, world, base, run)
        if designed.spec is None or designed.findings:
            return _not_designed(designed, request.constraints.members)
        members = {member.name for member in designed.spec.members}
        told = {part.part for part in designed.parts}
        kept = [part for part in before if part.part not in told and members.issuperset(part.members)]
        parts = [*kept, *designed.parts]
        proof = await self._proof(designed.spec, parts, (), world, run)
        if (recorded := run.recorded("published")) is None:
            built = BuiltTeam(designed.spec, request.goal, proof, request.activate)
            published = await self.store.publish(run.origin, built)
            _report(run, "published", published)
        else:
            published = _PUBLISHED.validate_python(recorded)
        note = ""
        if published.approval and request.activate:
            published, note = await self._ask_for_activation(published, proof, run)
        text = built_text(designed.spec, published, proof, designed.missing)
        return _proved(f"{text}\n\n{note}" if note else text, proof)

    async def _prove_again(self, request: BuildRequest, run: BuildRun) -> BuildOutcome:
        caller = run.origin.caller
        team = await self.store.version(caller, request.name or "", request.version)
        world = await self.store.world(caller)
        if run.recorded(_COMPILED) is None and (faults := case_findings(team.spec, request.cases, world)):
            text = untried_text(f"{team.spec.name}@{team.version}", faults)
            return BuildOutcome(text, done=False, code=TeamInvalidError.code)
        parts = team.proof.parts if team.proof else ()
        proof = await self._proof(team.spec, parts, request.cases, world, run)
        published, counts = await self.store.add_proof(run.origin, team, proof)
        _report(run, "published", published)
        return _proved(proof_text(published, proof, counts=counts), proof)

    async def _proof(
        self, team: TeamSpec, parts: Sequence[PartReport], extra: Sequence[BuildCase], world: TeamWorld, run: BuildRun
    ) -> ProofReport:
        """Prove the star that the team is for the caller, the same one in each process that resumes the build."""
        recorded = run.recorded(_COMPILED)
        if recorded is None:
            grant = run.origin.caller.grant
            star = compile_team(team, world, creator=grant, activator=grant)
            run.record(_COMPILED, star.model_dump(mode="json"))
        else:
            star = StarSpec.model_validate(recorded)
        return await prove(team, star, parts, extra, run)

    async def _ask_for_activation(
        self, published: PublishedVersion, proof: ProofReport, run: BuildRun
    ) -> tuple[PublishedVersion, str]:
        """Return the version as an admin's decision leaves it, with a note if that was not to activate it."""
        await run.flush()  # the event that names the version comes before the question
        details: JsonObject = {
            "hash": published.hash,
            "tools": list(published.tools),
            "proof": proof.state,
            "not_judged": list(proof.not_judged),
            "reason": published.approval,
        }
        approval = run.approve_activation(published.name, published.version, details)
        if not approval.approved:
            note = f": {approval.note}" if approval.note else "."
            return published, f"Its activation was not approved{note}"
        try:
            active = await self.store.activate(run.origin, published, approval)
        except _REFUSED as error:
            return published, f"It could not be activated. {error}"
        _report(run, "activated", active)
        return active, ""


def _proved(text: str, proof: ProofReport) -> BuildOutcome:
    """Return the outcome of a build or of a proof: a failed proof is not a success, though its version is stored."""
    failed = proof.state == "failed"
    return BuildOutcome(text, done=not failed, code="proof_failed" if failed else "")


def _not_designed(designed: Designed, most_members: int | None) -> BuildOutcome:
    if designed.missing and not designed.findings:
        return BuildOutcome(gap_text(designed.missing, most_members), done=False, code="capability_gap")
    if designed.findings:
        return BuildOutcome(refused_text(designed.findings), done=False, code=TeamInvalidError.code)
    text = f"No team was built, because the goal leaves open what it should do. {designed.question}"
    return BuildOutcome(text, done=False, code="goal_unclear")


def _report(run: BuildRun, step: str, published: PublishedVersion) -> None:
    """Record what was stored, and emit its event, unless an earlier process did."""
    if run.recorded(step) is not None:
        return
    event = Published(
        path=run.origin.path,
        team=published.name,
        version=published.version,
        state=published.state,
        epoch=published.epoch,
    )
    run.record(step, cast("JsonObject", asdict(published)), event)
