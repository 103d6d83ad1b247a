"""What became of a team: proofs of its versions, differences between them, and its changes."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query

from starling.app.http.dependencies import FromServices, TeamReader
from starling.app.http.problems import Problem
from starling.app.http.schemas import Name
from starling.app.http.team_build_bodies import Diff, DiffQuery, Proof, TeamHistory, VersionNumber

router = APIRouter(prefix="/v1/teams", tags=["teams"], responses={404: {"model": Problem}})

_REFUSED: Final[dict[int | str, dict[str, Any]]] = {422: {"model": Problem}}


@router.get("/{name}/versions/{version}/proof", summary="Show a proof", responses=_REFUSED)
async def proof(
    name: Name, version: Annotated[VersionNumber, Path()], services: FromServices, caller: TeamReader
) -> Proof:
    """Return the report of the last proof of a version: its cases with verdicts, calls and cost."""
    return Proof.model_validate(await services.teams.proof(caller.tenant, name, version), from_attributes=True)


@router.get("/{name}/history", summary="Show a team's history")
async def history(name: Name, services: FromServices, caller: TeamReader) -> TeamHistory:
    """List who built, proved, approved, activated and archived a team, and when: its last 500 changes, oldest first."""
    return TeamHistory.of(name, await services.teams.history(caller.tenant, name))


@router.get("/{name}/diff", summary="Compare two versions", responses=_REFUSED)
async def diff(name: Name, services: FromServices, caller: TeamReader, wanted: Annotated[DiffQuery, Query()]) -> Diff:
    """Compare the specs of two versions of a team."""
    versions, found = await services.teams.diff(caller.tenant, name, wanted.from_, wanted.to)
    return Diff.of(name, versions, found)
