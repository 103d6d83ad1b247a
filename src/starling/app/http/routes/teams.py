"""Teams of the tenant: check and import specs, activate, roll back and archive versions."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from architect.spec_reading import team_of
from architect.teams.repository import TeamState, TeamSummary, TeamVersion
from brain.registry.cards import AgentCard
from starling.app.http.dependencies import Admin, FromServices, TeamCaller
from starling.app.http.problems import Problem
from starling.app.http.schemas import Name
from starling.app.teams.service import TeamDetails, TeamList
from starling.core.principal import Principal
from starling.core.teams import TeamInvalidError, TeamSpec
from starling.infra.postgres.audit import Actor

router = APIRouter(prefix="/v1/teams", tags=["teams"])

_HASH: Final = "3f1c7a52d8e94b06a7c5f2e1d0b98a76543210fedcba98765432100123456789"
_AT: Final = "2026-11-20T11:12:01.250000Z"
_SPEC: Final[dict[str, Any]] = {
    "version": 1,
    "name": "disk_watch",
    "purpose": "Measures the disks and writes a report about them.",
    "members": [
        {
            "name": "watcher",
            "role": "Watcher of disks",
            "goal": "Measure how full the disks are.",
            "server": "system_health",
        },
        {"name": "writer", "role": "Writer", "goal": "Write a short report of what was measured."},
    ],
}
_MEMBERS: Final[list[dict[str, Any]]] = [
    {
        "name": "watcher",
        "role": "Watcher of disks",
        "server": "system_health",
        "team": None,
        "tools": ["system_health.disk_usage"],
        "state": "ready",
        "reason": "",
    },
    {
        "name": "writer",
        "role": "Writer",
        "server": None,
        "team": None,
        "tools": [],
        "state": "ready",
        "reason": "",
    },
]
_ENTRY: Final[dict[str, Any]] = {
    "name": "disk_watch",
    "purpose": "Measures the disks and writes a report about them.",
    "state": "active",
    "version": 2,
    "versions": 2,
    "created_at": _AT,
    "activated_at": _AT,
    "reason": "",
}
_VERSION: Final[dict[str, Any]] = {
    "version": 2,
    "state": "active",
    "hash": _HASH,
    "star": _HASH,
    "created_by": "k7m2p9",
    "created_at": _AT,
    "activated_by": "local",
    "activated_at": _AT,
    "spec": TeamSpec.model_validate(_SPEC).model_dump(mode="json"),
}
_ACTIVATED: Final[dict[str, Any]] = {
    "name": "disk_watch",
    "version": 2,
    "star": _HASH,
    "epoch": 5,
    "tools": ["system_health.disk_usage"],
    "left_out": ["system_health.processes"],
    "used_in": [],
}
_FINDING: Final[dict[str, Any]] = {
    "path": "members[0].server",
    "rule": "unknown_server",
    "reason": "There is no server 'system_healt'.",
    "remedy": "Did you mean 'system_health'?",
}


def _as_team_spec(_: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
    return handler(TeamSpec.__pydantic_core_schema__)


class _Described:
    """Describes a document as a team spec. The service reads it, and says all that is wrong with it at once."""

    __get_pydantic_json_schema__ = staticmethod(_as_team_spec)


def _examples(*examples: dict[str, Any]) -> ConfigDict:
    return ConfigDict(frozen=True, from_attributes=True, json_schema_extra={"examples": list(examples)})


class TeamDocument(BaseModel):
    """A team spec, as `starling team schema` describes it."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, json_schema_extra={"examples": [{"spec": {"version": 1, **_SPEC}}]}
    )

    spec: Annotated[dict[str, Any], _Described()]


class WantedVersion(BaseModel):
    """The version to activate; without one, the newest."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra={"examples": [{"version": 2}]})

    version: Annotated[int, Field(ge=1, lt=2**31, strict=True)] | None = None


class Team(BaseModel):
    """A team: its active version, else its newest. `reason` says why an active one can't work now."""

    model_config = _examples(_ENTRY)

    name: str
    purpose: str
    state: TeamState
    version: int
    versions: int
    created_at: datetime
    activated_at: datetime | None
    reason: str = ""


class Teams(BaseModel):
    """All teams of your tenant, by name."""

    model_config = _examples({"epoch": 5, "teams": [_ENTRY]})

    epoch: int
    teams: tuple[Team, ...]


class TeamMember(BaseModel):
    """A member of a team: of a server, of a team, or of neither. `reason` says why it can't work now.

    The tools of an active team are those that your key may call; else those that the spec names.
    """

    model_config = _examples(_MEMBERS[0])

    name: str
    role: str
    server: str | None
    team: str | None
    tools: tuple[str, ...]
    state: Literal["ready", "degraded"] = "ready"
    reason: str = ""


class TeamWithMembers(Team):
    """A team with its members."""

    model_config = _examples({**_ENTRY, "members": _MEMBERS})

    members: tuple[TeamMember, ...]


class Version(BaseModel):
    """One version of a team. `star` is the hash of what its last activation compiled."""

    model_config = _examples(_VERSION)

    version: int
    state: TeamState
    hash: str
    star: str | None
    created_by: str
    created_at: datetime
    activated_by: str | None
    activated_at: datetime | None
    spec: TeamSpec


class Versions(BaseModel):
    """All versions of a team, oldest first."""

    model_config = _examples({"name": "disk_watch", "versions": [_VERSION]})

    name: str
    versions: tuple[Version, ...]


class Finding(BaseModel):
    """What is wrong with a spec: where, by which rule, why, and what to do."""

    model_config = _examples(_FINDING)

    path: str
    rule: str
    reason: str
    remedy: str


class Checked(BaseModel):
    """What is wrong with a spec; nothing if it can be imported."""

    model_config = _examples({"valid": False, "findings": [_FINDING]})

    valid: bool
    findings: tuple[Finding, ...]


class Imported(BaseModel):
    """A stored version of a team. Not `created`: the same spec is its newest version already."""

    model_config = _examples({"name": "disk_watch", "version": 2, "state": "draft", "hash": _HASH, "created": True})

    name: str
    version: int
    state: TeamState
    hash: str
    created: bool


class Activated(BaseModel):
    """The active version of a team, and the first epoch that has it.

    `left_out` are the tools that its spec asks for and that the key of its creator or yours may not call. `used_in` are
    active teams with this team inside: they keep it as it was when they were activated.
    """

    model_config = _examples(_ACTIVATED)

    name: str
    version: int
    star: Annotated[str, Field(validation_alias="star_hash")]
    epoch: int
    tools: tuple[str, ...]
    left_out: tuple[str, ...]
    used_in: tuple[str, ...]


class Archived(BaseModel):
    """An archived team, and the first epoch without it. `used_in` are active teams that keep it inside."""

    model_config = _examples({"name": "disk_watch", "epoch": 6, "used_in": []})

    name: str
    epoch: int
    used_in: tuple[str, ...]


_MISSING: Final[dict[int | str, dict[str, Any]]] = {404: {"model": Problem}}
_REFUSED: Final[dict[int | str, dict[str, Any]]] = {422: {"model": Problem}}
_TOO_LATE: Final[dict[int | str, dict[str, Any]]] = {409: {"model": Problem}}


@router.get("", summary="List teams")
async def list_teams(services: FromServices, caller: TeamCaller) -> Teams:
    """List all teams of your tenant, with their states."""
    found = await services.teams.list(caller)
    return Teams(epoch=found.epoch, teams=tuple(_entry(team, found) for team in found.teams))


@router.post("/check", summary="Check a team spec", responses=_REFUSED)
async def check(document: TeamDocument, services: FromServices, caller: TeamCaller) -> Checked:
    """Check a spec as an import does, against the servers, agents and teams of now, and store nothing."""
    try:
        findings = await services.teams.check(caller, team_of(document.spec))
    except TeamInvalidError as error:
        findings = error.findings
    return Checked(valid=not findings, findings=tuple(Finding(**asdict(finding)) for finding in findings))


@router.get("/{name}", summary="Show a team", responses=_MISSING)
async def show(name: Name, services: FromServices, caller: TeamCaller) -> TeamWithMembers:
    """Show a team and its members, with the reasons why they can't work now."""
    return _details(await services.teams.show(caller, name))


@router.get("/{name}/versions", summary="List versions", responses=_MISSING)
async def versions(name: Name, services: FromServices, caller: TeamCaller) -> Versions:
    """List all versions of a team with their specs."""
    found = await services.teams.versions(caller.tenant, name)
    return Versions(name=name, versions=tuple(map(_version, found)))


@router.post("/{name}/versions", status_code=201, summary="Import a team spec", responses=_REFUSED)
async def add(  # noqa: PLR0913, PLR0917 - one for each thing that the request has
    name: Name,
    document: TeamDocument,
    request: Request,
    response: Response,
    services: FromServices,
    caller: TeamCaller,
) -> Imported:
    """Store a spec as the next version of a team, a draft; an equal newest version is kept and answered with 200.

    No member can call what your key may not call. A spec with faults is refused with all of them in `errors`.
    """
    done = await services.teams.add(caller, name, team_of(document.spec), _actor(caller, request))
    response.status_code = 201 if done.created else 200
    stored = done.stored
    return Imported(
        name=name, version=stored.version, state=stored.state, hash=stored.hash, created=done.created
    )


@router.post("/{name}/activate", summary="Activate a version", responses=_MISSING | _REFUSED)
async def activate(
    name: Name, request: Request, services: FromServices, caller: Admin, wanted: WantedVersion | None = None
) -> Activated:
    """Compile a version and use it in runs accepted from now on, on every machine; the active one is superseded.

    Its members get the tools that its spec, its creator and you may call. To return to an earlier version, activate it.
    """
    version = wanted.version if wanted else None
    done = await services.teams.activate(caller, name, version, _actor(caller, request))
    return Activated.model_validate(done)


@router.post("/{name}/rollback", summary="Roll back a team", responses=_MISSING | _TOO_LATE | _REFUSED)
async def rollback(name: Name, request: Request, services: FromServices, caller: Admin) -> Activated:
    """Activate the version that was active before the active one."""
    return Activated.model_validate(await services.teams.rollback(caller, name, _actor(caller, request)))


@router.post("/{name}/archive", summary="Archive a team", responses=_MISSING | _TOO_LATE)
async def archive(name: Name, request: Request, services: FromServices, caller: Admin) -> Archived:
    """Archive a team: runs accepted from now on don't see it. Its versions are kept and can be activated again."""
    return Archived.model_validate(await services.teams.archive(caller, name, _actor(caller, request)))


def _actor(caller: Principal, request: Request) -> Actor:
    return Actor.caller(caller, request.client.host if request.client else "")


def _entry(team: TeamSummary, found: TeamList) -> Team:
    reason = found.unusable.get(team.name, "") if team.state == "active" else ""
    return Team(**asdict(team), reason=reason)


def _details(found: TeamDetails) -> TeamWithMembers:
    chosen, card = found.chosen, found.card
    return TeamWithMembers(
        name=found.name,
        purpose=chosen.spec.purpose,
        state=chosen.state,
        version=chosen.version,
        versions=found.versions,
        created_at=chosen.created_at,
        activated_at=chosen.activated_at,
        reason=card.degraded if card else "",
        members=_members(chosen.spec, card),
    )


def _members(spec: TeamSpec, card: AgentCard | None) -> tuple[TeamMember, ...]:
    cards = card.members if card else {}
    return tuple(
        TeamMember(
            name=member.name,
            role=member.role,
            server=member.server,
            team=member.team,
            tools=tuple(tool.full_name for tool in cards[member.name].tools) if card else member.tools,
            state="degraded" if card and cards[member.name].degraded else "ready",
            reason=cards[member.name].degraded if card else "",
        )
        for member in spec.members
    )


def _version(found: TeamVersion) -> Version:
    return Version(
        version=found.version,
        state=found.state,
        hash=found.hash,
        star=found.star_hash,
        created_by=found.creator.name,
        created_at=found.created_at,
        activated_by=found.activated_by,
        activated_at=found.activated_at,
        spec=found.spec,
    )
