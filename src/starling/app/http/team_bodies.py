"""Bodies of requests about teams, and of the answers to them."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue

from architect.repository import TeamState, TeamSummary, TeamVersion
from architect.team_graph import TeamGraph
from brain.registry.cards import AgentCard, degraded_members
from starling.app.teams.service import ImportedTeam, TeamDetails, TeamList
from starling.core.teams import findings as found
from starling.core.teams import spec as teams
from starling.core.teams.proofs import ProofState
from starling.core.teams.spec import TeamSpec

HASH: Final = "3f1c7a52d8e94b06a7c5f2e1d0b98a76543210fedcba98765432100123456789"
AT: Final = "2026-11-20T11:12:01.250000Z"
RUN_ID: Final = "01a1f8ac-c002-7b1e-9a55-6f2b0d7c9e10"
TRACE_ID: Final = "de2196c9a4c5d6e7f8091a2b3c4d5e6f"
SPEC: Final[dict[str, Any]] = {
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
        "tools": ["system_health.disk"],
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
    "created_at": AT,
    "activated_at": AT,
    "reason": "",
    "degraded_members": {},
}
_PROOF: Final[dict[str, Any]] = {"state": "proven", "score": 1.0, "run_id": RUN_ID, "trace_id": TRACE_ID}
_VERSION: Final[dict[str, Any]] = {
    "version": 2,
    "state": "active",
    "hash": HASH,
    "star": HASH,
    "created_by": "k7m2p9",
    "created_at": AT,
    "activated_by": "local",
    "activated_at": AT,
    "goal": "Watch how full the disks of this machine are, and write a report about them.",
    "built_by": RUN_ID,
    "proof": _PROOF,
    "spec": TeamSpec.model_validate(SPEC).model_dump(mode="json"),
}
_ACTIVATED: Final[dict[str, Any]] = {
    "name": "disk_watch",
    "version": 2,
    "star": HASH,
    "epoch": 5,
    "tools": ["system_health.disk"],
    "left_out": ["system_health.processes"],
    "used_in": ["machine_watch@3"],
    "outdated_tools": [],
}
_FINDING: Final[dict[str, Any]] = {
    "path": "members[0].server",
    "rule": "unknown_server",
    "reason": "There is no server 'system_healt'.",
    "remedy": "Did you mean 'system_health'?",
}


def _as_team_spec(_: object, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
    return handler(TeamSpec.__pydantic_core_schema__)


class DescribedSpec:
    """Describes a document as a team spec. The service reads it, and says all that is wrong with it at once."""

    __get_pydantic_json_schema__ = staticmethod(_as_team_spec)


def _examples(*examples: dict[str, Any]) -> ConfigDict:
    return ConfigDict(frozen=True, from_attributes=True, json_schema_extra={"examples": list(examples)})


class TeamDocument(BaseModel):
    """A team spec, as `starling team schema` describes it."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, json_schema_extra={"examples": [{"spec": {"version": 1, **SPEC}}]}
    )

    spec: Annotated[dict[str, Any], DescribedSpec()]


class WantedVersion(BaseModel):
    """The version to activate; without one, the newest."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra={"examples": [{"version": 2}]})

    version: Annotated[int, Field(ge=1, lt=2**31, strict=True)] | None = None


class Team(BaseModel):
    """A team: its active version, else its newest. `reason` says why an active one can't work now.

    `degraded_members` says which of its members can't, by name, as `outer/inner` for members of a team inside it.
    """

    model_config = _examples(_ENTRY)

    name: str
    purpose: str
    state: TeamState
    version: int
    versions: int
    created_at: datetime
    activated_at: datetime | None = None
    reason: str = ""
    degraded_members: dict[str, str] = {}


class Teams(BaseModel):
    """All teams of your tenant, by name."""

    model_config = _examples({"epoch": 5, "teams": [_ENTRY]})

    epoch: int
    teams: tuple[Team, ...]

    @classmethod
    def of(cls, found: TeamList) -> Self:
        """Return the response body of a list."""
        return cls(epoch=found.epoch, teams=tuple(_entry(team, found.cards.get(team.name)) for team in found.teams))


class TeamMember(BaseModel):
    """A member of a team: of a server, of a team, or of neither. `reason` says why it can't work now.

    The tools of an active team are those that your key may call; else those that the spec names.
    """

    model_config = _examples(_MEMBERS[0])

    name: str
    role: str
    server: str | None = None
    team: str | None = None
    tools: tuple[str, ...]
    state: Literal["ready", "degraded"] = "ready"
    reason: str = ""


class TeamWithMembers(Team):
    """A team with its members. `used_in` are the active teams, as `name@version`, that have it inside."""

    model_config = _examples({**_ENTRY, "members": _MEMBERS, "used_in": ["machine_watch@3"]})

    members: tuple[TeamMember, ...]
    used_in: tuple[str, ...] = ()

    @classmethod
    def of(cls, found: TeamDetails) -> Self:
        """Return the response body of a team."""
        chosen, card = found.chosen, found.card
        return cls(
            name=found.name,
            purpose=chosen.spec.purpose,
            state=chosen.state,
            version=chosen.version,
            versions=found.versions,
            created_at=chosen.created_at,
            activated_at=chosen.activated_at,
            **_health(card),
            members=tuple(_member(member, card) for member in chosen.spec.members),
            used_in=found.used_in,
        )


class VersionProof(BaseModel):
    """What the last proof of a version came to; `score` is the share of criteria that are met."""

    model_config = _examples(_PROOF)

    state: ProofState
    score: float
    run_id: str
    trace_id: str


class Version(BaseModel):
    """One version of a team. `star` is the hash of what its last activation compiled.

    `goal` and the run that it was `built_by` are null for an imported one, `proof` for one that was never proved.
    """

    model_config = _examples(_VERSION)

    version: int
    state: TeamState
    hash: str
    star: str | None = None
    created_by: str
    created_at: datetime
    activated_by: str | None = None
    activated_at: datetime | None = None
    goal: str | None = None
    built_by: str | None = None
    proof: VersionProof | None = None
    spec: TeamSpec

    @classmethod
    def of(cls, found: TeamVersion) -> Self:
        """Return the response body of a version."""
        return cls(
            version=found.version,
            state=found.state,
            hash=found.hash,
            star=found.star_hash,
            created_by=found.creator.name,
            created_at=found.created_at,
            activated_by=found.activated_by,
            activated_at=found.activated_at,
            goal=found.goal,
            built_by=found.built_by,
            proof=VersionProof.model_validate(found.proof) if found.proof else None,
            spec=found.spec,
        )


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

    @classmethod
    def of(cls, findings: Sequence[found.Finding]) -> Self:
        """Return the response body of a check."""
        return cls(valid=not findings, findings=tuple(map(Finding.model_validate, findings)))


class Imported(BaseModel):
    """A stored version of a team. Not `created`: the same spec is its newest version already."""

    model_config = _examples({"name": "disk_watch", "version": 2, "state": "draft", "hash": HASH, "created": True})

    name: str
    version: int
    state: TeamState
    hash: str
    created: bool

    @classmethod
    def of(cls, done: ImportedTeam) -> Self:
        """Return the response body of an import."""
        stored = done.stored
        return cls(name=done.name, version=stored.version, state=stored.state, hash=stored.hash, created=done.created)


class Activated(BaseModel):
    """The active version of a team, and the first epoch that has it.

    `left_out` are the tools that its spec asks for and that the key of its creator or yours may not call. `used_in` are
    active teams, as `name@version`, with this team inside: they keep it as it was when they were activated.
    `outdated_tools` are those of its proof that changed since, or are gone.
    """

    model_config = _examples(_ACTIVATED)

    name: str
    version: int
    star: Annotated[str, Field(validation_alias="star_hash")]
    epoch: int
    tools: tuple[str, ...]
    left_out: tuple[str, ...]
    used_in: tuple[str, ...]
    outdated_tools: tuple[str, ...] = ()


class GraphQuery(BaseModel):
    """Which graph, and in which format: without one, Mermaid if the header `Accept` asks for it, else JSON."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Annotated[
        int | None, Field(ge=1, lt=2**31, description="Of which version; default: the active, else the newest one.")
    ] = None
    format: Literal["json", "mermaid"] | None = None


class Graph(TeamGraph):
    """The members of a team, at any depth, and the servers that they use, as nodes and edges."""

    model_config = _examples(
        {
            "nodes": [
                {"id": "disk_watch", "kind": "team", "name": "disk_watch", "role": SPEC["purpose"]},
                {
                    "id": "disk_watch/watcher",
                    "kind": "member",
                    "name": "watcher",
                    "role": "Watcher of disks",
                    "runtime": "crewai",
                },
                {"id": "server:system_health", "kind": "server", "name": "system_health"},
            ],
            "edges": [
                {"source": "disk_watch", "target": "disk_watch/watcher"},
                {
                    "source": "disk_watch/watcher",
                    "target": "server:system_health",
                    "tools": ["system_health.disk"],
                },
            ],
        }
    )


class Archived(BaseModel):
    """An archived team, and the first epoch without it. `used_in`: active teams, `name@version`, that keep it."""

    model_config = _examples({"name": "disk_watch", "epoch": 6, "used_in": []})

    name: str
    epoch: int
    used_in: tuple[str, ...]


def _entry(team: TeamSummary, card: AgentCard | None) -> Team:
    return Team(**asdict(team), **_health(card if team.state == "active" else None))


def _health(card: AgentCard | None) -> dict[str, Any]:
    return {"reason": card.degraded, "degraded_members": degraded_members(card)} if card else {}


def _member(member: teams.TeamMember, card: AgentCard | None) -> TeamMember:
    bound = card.members[member.name] if card else None
    return TeamMember(
        name=member.name,
        role=member.role,
        server=member.server,
        team=member.team,
        tools=tuple(tool.full_name for tool in bound.tools) if bound else member.tools,
        state="degraded" if bound and bound.degraded else "ready",
        reason=bound.degraded if bound else "",
    )
