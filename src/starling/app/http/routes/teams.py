"""Teams of the tenant: check and import specs, activate, roll back and archive versions."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Query, Request, Response
from fastapi.responses import JSONResponse

from architect.spec_format import team_of
from architect.team_graph import TeamGraph, mermaid, team_graph
from starling.app.http.dependencies import Admin, FromServices, IdempotencyKey, TeamCaller, TeamReader
from starling.app.http.problems import Problem
from starling.app.http.schemas import RUN_LOCATION, Name, RunAccepted, run_path
from starling.app.http.team_bodies import (
    Activated,
    Archived,
    Checked,
    Graph,
    GraphQuery,
    Imported,
    TeamDocument,
    Teams,
    TeamWithMembers,
    Version,
    Versions,
    WantedVersion,
)
from starling.app.http.team_build_bodies import VersionRequest
from starling.core.principal import Principal
from starling.core.teams.findings import TeamInvalidError
from starling.core.teams.spec import TeamSpec
from starling.infra.postgres.audit import Actor

MERMAID: Final = "text/vnd.mermaid"

router = APIRouter(prefix="/v1/teams", tags=["teams"])

type _Wanted = Annotated[WantedVersion | None, Body(examples=[{"version": 2}])]

_MISSING: Final[dict[int | str, dict[str, Any]]] = {404: {"model": Problem}}
_REFUSED: Final[dict[int | str, dict[str, Any]]] = {422: {"model": Problem}}
_DRAWN: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {MERMAID: {"schema": {"type": "string", "examples": ['flowchart TD\n    n0(["disk_watch"])\n']}}}}
}
_TOO_LATE: Final[dict[int | str, dict[str, Any]]] = {409: {"model": Problem}}
_ADDED: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": Imported},
    201: {"model": Imported},
    202: {"model": RunAccepted, "headers": RUN_LOCATION},
    **(_MISSING | _TOO_LATE | _REFUSED),
}


@router.get("", summary="List teams")
async def list_teams(services: FromServices, caller: TeamReader) -> Teams:
    """List all teams of your tenant, with their states."""
    return Teams.of(await services.teams.list(caller))


@router.post("/check", summary="Check a team spec", responses=_REFUSED)
async def check(document: TeamDocument, services: FromServices, caller: TeamCaller) -> Checked:
    """Check a spec as an import does, against the servers, agents and teams of now, and store nothing."""
    try:
        findings = await services.teams.check(caller, await _spec(document.spec))
    except TeamInvalidError as error:
        findings = error.findings
    return Checked.of(findings)


@router.get("/{name}", summary="Show a team", responses=_MISSING)
async def show(name: Name, services: FromServices, caller: TeamReader) -> TeamWithMembers:
    """Show a team and its members, with the reasons why they can't work now."""
    return TeamWithMembers.of(await services.teams.show(caller, name))


@router.get("/{name}/versions", summary="List versions", responses=_MISSING)
async def versions(name: Name, services: FromServices, caller: TeamReader) -> Versions:
    """List all versions of a team with their specs."""
    found = await services.teams.versions(caller.tenant, name)
    return Versions(name=name, versions=tuple(map(Version.of, found)))


@router.post(
    "/{name}/versions",
    status_code=201,
    response_model=Imported,
    summary="Import or build a version",
    responses=_ADDED,
)
async def add(
    name: Name,
    wish: VersionRequest,
    request: Request,
    services: FromServices,
    caller: TeamCaller,
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
    done = await services.teams.add(caller, name, await _spec(wish.spec), _actor(caller, request))
    return JSONResponse(Imported.of(done).model_dump(mode="json"), 201 if done.created else 200)


@router.get("/{name}/graph", summary="Draw a team", response_model=Graph, responses=_MISSING | _REFUSED | _DRAWN)
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


@router.post("/{name}/activate", summary="Activate a version", responses=_MISSING | _TOO_LATE | _REFUSED)
async def activate(
    name: Name, request: Request, services: FromServices, caller: Admin, wanted: _Wanted = None
) -> Activated:
    """Compile a version and use it in runs accepted from now on, on every machine; the active one is superseded.

    Its members get the tools that its spec, its creator and you may call. To return to an earlier version, activate it.
    A built version whose last proof failed is refused.
    """
    version = wanted.version if wanted else None
    done = await services.teams.activate(caller, name, version, _actor(caller, request))
    return Activated.model_validate(done)


@router.post("/{name}/rollback", summary="Roll back a team", responses=_MISSING | _TOO_LATE | _REFUSED)
async def rollback(name: Name, request: Request, services: FromServices, caller: Admin) -> Activated:
    """Activate the highest version before the active one that was active too, whatever was active in between.

    Versions from before the team was archived don't count; they can be activated by their numbers.
    """
    return Activated.model_validate(await services.teams.rollback(caller, name, _actor(caller, request)))


@router.post("/{name}/archive", summary="Archive a team", responses=_MISSING | _TOO_LATE)
async def archive(name: Name, request: Request, services: FromServices, caller: Admin) -> Archived:
    """Archive a team: runs accepted from now on don't see it. Its versions are kept and can be activated again."""
    return Archived.model_validate(await services.teams.archive(caller, name, _actor(caller, request)))


async def _spec(document: Mapping[str, Any]) -> TeamSpec:
    """Return the spec of a document, read in a thread: a long one takes most of a second."""
    return await asyncio.to_thread(team_of, document)


def _actor(caller: Principal, request: Request) -> Actor:
    return Actor.caller(caller, request.client.host if request.client else "")
