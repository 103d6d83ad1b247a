"""Bodies of requests that build and prove teams, and of what is known of their versions."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from architect.spec_format import SpecDiff
from starling.app.http.schemas import Name
from starling.app.http.team_bodies import AT, HASH, RUN_ID, SPEC, TRACE_ID, DescribedSpec
from starling.core.agents import AgentName
from starling.core.teams.building import BuildCase, BuildConstraints, BuildKind, BuildRequest
from starling.core.teams.proofs import ProofReport
from starling.infra.postgres.audit import AuditEntry

type VersionNumber = Annotated[int, Field(ge=1, lt=2**31)]
type _Cases = Annotated[
    tuple[BuildCase, ...], Field(max_length=20, description="Further cases that the team is tried on.")
]

_GOAL: Final = "Watch how full the disks of this machine are, and write a report about them."
_CASE: Final[dict[str, Any]] = {
    "input": "Report on the disks.",
    "criteria": [{"id": "percent", "text": "It names a percentage.", "kind": "text_contains", "value": "%"}],
    "must_call": ["system_health.disk"],
}
_PROOF: Final[dict[str, Any]] = {
    "state": "proven",
    "score": 1.0,
    "threshold": 1.0,
    "cases": [
        {
            "id": "disks",
            "passed": True,
            "simulation_only": False,
            "criteria": [{"id": "percent", "met": True, "reason": ""}],
            "trial": {
                "path": "t1/case_disks",
                "reply": "The disk is 23 % full.",
                "failure": "",
                "calls": [
                    {
                        "tool": "system_health.disk",
                        "path": "t1/case_disks/t1",
                        "status": "succeeded",
                        "source": "live",
                    }
                ],
                "verdicts": [{"member": "watcher", "status": "approved", "reason": ""}],
                "artifacts": [],
                "tokens": 812,
                "seconds": 2.5,
            },
        }
    ],
    "spec_hash": HASH,
    "tools": {"system_health.disk": HASH},
    "run_id": RUN_ID,
    "trace_id": TRACE_ID,
}
_ENTRY: Final[dict[str, Any]] = {
    "at": AT,
    "action": "team.build",
    "by": "k7m2p9",
    "origin": "architect",
    "detail": {"version": 1, "run_id": RUN_ID, "goal": _GOAL, "hash": HASH},
}


def _closed(*examples: dict[str, Any], **schema: Any) -> ConfigDict:
    return ConfigDict(extra="forbid", frozen=True, json_schema_extra={"examples": list(examples), **schema})


def _shown(*examples: dict[str, Any]) -> ConfigDict:
    return ConfigDict(
        frozen=True, from_attributes=True, serialize_by_alias=True, json_schema_extra={"examples": list(examples)}
    )


class _Build(BaseModel):
    constraints: BuildConstraints = BuildConstraints()
    cases: _Cases = ()
    activate: bool = Field(default=True, description="Activate it once it is proven; an admin is asked if it is not.")
    partial: bool = Field(default=False, description="Also build a team that serves only a part of the goal.")
    thread_id: Name | None = Field(default=None, description="The conversation of the run. Default: one of its own.")

    def _request(self, kind: BuildKind, goal: str, **fields: Any) -> BuildRequest:
        return BuildRequest(
            kind=kind,
            goal=goal,
            **fields,
            constraints=self.constraints,
            cases=self.cases,
            activate=self.activate,
            partial=self.partial,
        )


class TeamBuild(_Build):
    """What a new team is to be good for. Its name is reserved until the build ends; without one, it is chosen."""

    model_config = _closed({"goal": _GOAL, "name": "disk_watch", "cases": [_CASE]})

    goal: Annotated[str, Field(min_length=1, description="What the team is to do, in plain words.")]
    name: AgentName | None = Field(default=None, description="Its name, if you want to choose it.")

    def request(self) -> BuildRequest:
        """Return the build that the body stands for."""
        return self._request("team", self.goal, name=self.name)


class VersionRequest(_Build):
    """Either a whole `spec` to import, alone, or a `goal` to build the next version for."""

    model_config = _closed(
        {"spec": {**SPEC}},
        {"goal": "Report on the memory, too.", "version": 2},
        oneOf=[{"required": ["spec"]}, {"required": ["goal"]}],
    )

    spec: Annotated[dict[str, Any], DescribedSpec()] | None = Field(
        default=None, description="A team spec, as `starling team schema` describes it."
    )
    goal: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="What is to be changed, in plain words."
    )
    version: VersionNumber | None = Field(
        default=None, description="The version to start from. Default: the active, else the newest one."
    )

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.spec is None) == (self.goal is None):
            raise ValueError("send either `spec` or `goal`")
        if self.spec is not None and (more := sorted(self.model_fields_set - {"spec", "goal"})):
            raise ValueError(f"`{more[0]}` belongs to a `goal`; send `spec` alone")
        return self

    def request(self) -> BuildRequest:
        """Return the build that the body stands for, of a team without a name."""
        return self._request("version", self.goal or "", version=self.version)


class ProofWish(BaseModel):
    """The version to prove, default the active, else the newest one, and further cases to try it on."""

    model_config = _closed({"version": 2, "cases": [_CASE]})

    version: VersionNumber | None = None
    cases: _Cases = ()


class Proof(ProofReport):
    """The whole report of the last proof of a version."""

    model_config = _shown(_PROOF)


class TeamChange(BaseModel):
    """A change of a team: `by` is the id of a key or `local`, `detail` depends on the action."""

    model_config = _shown(_ENTRY)

    at: datetime
    action: str
    by: str
    origin: str
    detail: dict[str, Any]

    @classmethod
    def of(cls, entry: AuditEntry) -> Self:
        """Return the response body of an audited change."""
        detail = {name: value for name, value in entry.change.detail.items() if name != "tenant"}
        return cls(
            at=entry.created_at,
            action=entry.change.action,
            by=entry.actor.name,
            origin=entry.actor.origin,
            detail=detail,
        )


class TeamHistory(BaseModel):
    """The latest changes of a team, oldest first."""

    model_config = _shown({"name": "disk_watch", "changes": [_ENTRY]})

    name: str
    changes: tuple[TeamChange, ...]

    @classmethod
    def of(cls, name: str, entries: Sequence[AuditEntry]) -> Self:
        """Return the response body of a history."""
        return cls(name=name, changes=tuple(map(TeamChange.of, entries)))


class DiffQuery(BaseModel):
    """Which versions to compare: `to`, default the newest one, with `from`, default the one before `to`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    from_: Annotated[VersionNumber | None, Field(alias="from")] = None
    to: VersionNumber | None = None


class Diff(BaseModel):
    """How the spec of a version differs from that of another one: as a unified diff of YAML, and by paths."""

    model_config = _shown(
        {
            "name": "disk_watch",
            "from": 1,
            "to": 2,
            "diff": "--- disk_watch@1\n+++ disk_watch@2\n@@ -3 +3 @@\n-purpose: Old.\n+purpose: New.\n",
            "paths": ["purpose"],
        }
    )

    name: str
    from_: Annotated[int, Field(alias="from")]
    to: int
    diff: str
    paths: tuple[str, ...]

    @classmethod
    def of(cls, name: str, versions: tuple[int, int], found: SpecDiff) -> Self:
        """Return the response body of a comparison."""
        made: Mapping[str, Any] = {"from": versions[0], "to": versions[1], "diff": found.text, "paths": found.paths}
        return cls(name=name, **made)
