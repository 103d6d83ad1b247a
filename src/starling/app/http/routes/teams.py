"""Teams of the tenant: check and import specs; activate, roll back, archive, prove and compare versions."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from architect.repository import TeamVersion
from architect.spec_format import team_of
from architect.team_graph import TeamGraph, mermaid, team_graph
from starling.app.http.dependencies import Admin, ChangeActor, FromServices, IdempotencyKey, TeamCaller, TeamReader
from starling.app.http.problems import refusals
from starling.app.http.schemas import RUN_LOCATION, Name, RunAccepted, run_path
from starling.app.http.team_bodies import (
    GraphQuery,
    TeamDiffQuery,
    TeamDocument,
    VersionNumber,
    VersionRequest,
    WantedVersion,
)
from starling.app.teams.activation import ActivatedTeam
from starling.app.teams.service import ArchivedTeam, ImportedTeam, TeamDetails, TeamDiff, TeamHistory, TeamList
from starling.core.teams.proofs import ProofReport
from starling.core.teams.spec import Finding, TeamInvalidError, TeamSpec

MERMAID: Final = "text/vnd.mermaid"

router = APIRouter(prefix="/v1/teams", tags=["teams"])

_DRAWN: Final[dict[int | str, dict[str, Any]]] = {200: {"content": {MERMAID: {"schema": {"type": "string"}}}}}
_ADDED: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": ImportedTeam},
    201: {"model": ImportedTeam},
    202: {"model": RunAccepted, "headers": RUN_LOCATION},
    **refusals(404, 409, 422),
}


@dataclass(frozen=True, slots=True)
class TeamVersions:
    """All versions of a team, oldest first."""

    name: str
    versions: Sequence[TeamVersion]


@dataclass(frozen=True, slots=True)
class CheckedSpec:
    """What is wrong with a spec; nothing if it can be imported. `notes`: limits above those of the platform."""

    valid: bool
    findings: Sequence[Finding]
    notes: Sequence[Finding] = ()


@router.get("", summary="List teams")
async def list_teams(services: FromServices, caller: TeamReader) -> TeamList:
    """List all teams of your tenant, with their states."""
    return await services.teams.list(caller)


@router.post("/check", summary="Check a team spec", responses=refusals(422))
async def check(document: TeamDocument, services: FromServices, caller: TeamCaller) -> CheckedSpec:
    """Check a spec as an import does, against the servers, agents and teams of now, and store nothing."""
    try:
        findings, notes = await services.teams.check(caller, await _spec(document.spec))
    except TeamInvalidError as error:
        findings, notes = error.findings, ()
    return CheckedSpec(not findings, findings, notes)


@router.get("/{name}", summary="Show a team", responses=refusals(404))
async def show(name: Name, services: FromServices, caller: TeamReader) -> TeamDetails:
    """Show a team and its members, with the reasons why they can't work now."""
    return await services.teams.show(caller, name)


@router.get("/{name}/versions", summary="List versions", responses=refusals(404))
async def versions(name: Name, services: FromServices, caller: TeamReader) -> TeamVersions:
    """List all versions of a team with their specs."""
    return TeamVersions(name, await services.teams.versions(caller.tenant, name))


@router.post(
    "/{name}/versions",
    status_code=201,
    response_model=ImportedTeam,
    summary="Import or build a version",
    responses=_ADDED,
)
async def add(
    name: Name,
    wish: VersionRequest,
    services: FromServices,
    caller: TeamCaller,
    actor: ChangeActor,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Store a `spec` as the next version of a team, a draft, or accept the build of the next version for a `goal`.

    A spec that equals the newest version is kept and answered with 200. No member can call what your key may not call.
    A spec with faults is refused with all of them in `errors`. A build is a run: its state is at `Location`.
    """
    if wish.spec is None:
        thread = wish.thread_id or ""
        accepted = await services.builds.version(caller, name, wish.request(), thread, idempotency_key)
        location = {"Location": run_path(accepted.key.id)}
        return JSONResponse(RunAccepted.of(accepted).model_dump(mode="json"), 202, location)
    done = await services.teams.add(caller, name, await _spec(wish.spec), actor)
    return JSONResponse(asdict(done), 201 if done.created else 200)


@router.get("/{name}/graph", summary="Draw a team", response_model=TeamGraph, responses=refusals(404, 422) | _DRAWN)
async def graph(
    name: Name, request: Request, services: FromServices, caller: TeamReader, wanted: Annotated[GraphQuery, Query()]
) -> Response | TeamGraph:
    """Draw a version with its members, teams inside it and servers, as JSON or as a Mermaid flowchart.

    A version that was never active is drawn as it would be if it were activated now with your key. Tools that
    your key may not call are left out.
    """
    star = await services.teams.star(caller, name, wanted.version)
    drawn = team_graph(star.limited(caller.grant))
    asked = wanted.format or ("mermaid" if MERMAID in request.headers.get("accept", "") else "json")
    return Response(mermaid(drawn), media_type=MERMAID) if asked == "mermaid" else drawn


@router.post("/{name}/activate", summary="Activate a version", responses=refusals(404, 409, 422))
async def activate(
    name: Name, services: FromServices, caller: Admin, actor: ChangeActor, wanted: WantedVersion | None = None
) -> ActivatedTeam:
    """Compile a version and use it in runs accepted from now on, on every machine; the active one is superseded.

    Its members get the tools that its spec, its creator and you may call. To return to an earlier version, activate it.
    A built version whose last proof failed is refused.
    """
    version = wanted.version if wanted else None
    return await services.teams.activate(caller, name, version, actor)


@router.post("/{name}/rollback", summary="Roll back a team", responses=refusals(404, 409, 422))
async def rollback(name: Name, services: FromServices, caller: Admin, actor: ChangeActor) -> ActivatedTeam:
    """Activate the highest version before the active one that was active too, whatever was active in between.

    Versions from before the team was archived don't count; they can be activated by their numbers.
    """
    return await services.teams.rollback(caller, name, actor)


@router.post("/{name}/archive", summary="Archive a team", responses=refusals(404, 409))
async def archive(name: Name, services: FromServices, caller: Admin, actor: ChangeActor) -> ArchivedTeam:
    """Archive a team: runs accepted from now on don't see it. Its versions are kept and can be activated again."""
    return await services.teams.archive(caller, name, actor)


@router.get("/{name}/versions/{version}/proof", summary="Show a proof", responses=refusals(404, 422))
async def proof(
    name: Name, version: Annotated[VersionNumber, Path()], services: FromServices, caller: TeamReader
) -> ProofReport:
    """Return the report of the last proof of a version: its cases with verdicts, calls and cost."""
    return await services.teams.proof(caller.tenant, name, version)


@router.get("/{name}/history", summary="Show a team's history", responses=refusals(404))
async def history(name: Name, services: FromServices, caller: TeamReader) -> TeamHistory:
    """List who built, proved, approved, activated and archived a team, and when: its last 500 changes, oldest first."""
    return await services.teams.history(caller.tenant, name)


@router.get("/{name}/diff", summary="Compare two versions", responses=refusals(404, 422))
async def diff(
    name: Name, services: FromServices, caller: TeamReader, wanted: Annotated[TeamDiffQuery, Query()]
) -> TeamDiff:
    """Compare the specs of two versions of a team."""
    return await services.teams.diff(caller.tenant, name, wanted.from_, wanted.to)


async def _spec(document: Mapping[str, Any]) -> TeamSpec:
    """Return the spec of a document, read in a thread: a long one takes most of a second."""
    return await asyncio.to_thread(team_of, document)
