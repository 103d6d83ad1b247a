"""Builds and proofs of teams, which are runs of the agent `architect`."""

from typing import Final

from fastapi import APIRouter, Response

from starling.app.http.dependencies import FromServices, IdempotencyKey, TeamCaller
from starling.app.http.problems import refusals
from starling.app.http.schemas import RUN_LOCATION, Name, RunAccepted, run_path
from starling.app.http.team_bodies import ProofWish, TeamBuild

router = APIRouter(prefix="/v1/teams", tags=["teams"], responses=refusals(503))

_ANSWERS: Final = {202: {"headers": RUN_LOCATION}, **refusals(409, 422)}


@router.post("", status_code=202, summary="Build a team", responses=_ANSWERS)
async def build(
    wish: TeamBuild,
    response: Response,
    services: FromServices,
    caller: TeamCaller,
    idempotency_key: IdempotencyKey = None,
) -> RunAccepted:
    """Accept the build of a new team: a run that designs, checks and proves it, with no more rights than your key has.

    Its state is at `Location`. A `name` is reserved until the run ends: another build or import of it gets 409.
    """
    accepted = await services.builds.team(caller, wish.request(), wish.thread_id or "", idempotency_key)
    response.headers["Location"] = run_path(accepted.key.id)
    return RunAccepted.of(accepted)


@router.post("/{name}/prove", status_code=202, summary="Prove a version", responses=refusals(404) | _ANSWERS)
async def prove(
    name: Name,
    response: Response,
    services: FromServices,
    caller: TeamCaller,
    wanted: ProofWish | None = None,
    idempotency_key: IdempotencyKey = None,
) -> RunAccepted:
    """Accept another proof of a version: a run that tries it on its cases and on yours."""
    wish = wanted or ProofWish()
    accepted = await services.builds.proof(caller, name, wish.version, wish.cases, idempotency_key)
    response.headers["Location"] = run_path(accepted.key.id)
    return RunAccepted.of(accepted)
