"""Bodies and queries of requests about teams."""

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue

from starling.app.http.schemas import ClosedModel, ThreadName
from starling.core.agents import AgentName
from starling.core.teams.building import BuildCase, BuildConstraints, BuildKind, BuildRequest
from starling.core.teams.spec import TeamSpec

type VersionNumber = Annotated[int, Field(ge=1, lt=2**31)]
type _Cases = Annotated[
    tuple[BuildCase, ...], Field(max_length=20, description="Further cases that the team is tried on.")
]


class _DescribedSpec:
    """Describes a document as a team spec. The service reads it, and says all that is wrong with it at once."""

    @staticmethod
    def __get_pydantic_json_schema__(_: object, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(TeamSpec.__pydantic_core_schema__)


type _SpecDocument = Annotated[dict[str, Any], _DescribedSpec()]


class TeamDocument(ClosedModel):
    """A team spec, as `starling team schema` describes it."""

    spec: _SpecDocument


class WantedVersion(ClosedModel):
    """The version to activate; without one, the newest."""

    version: Annotated[int, Field(ge=1, lt=2**31, strict=True)] | None = None


class GraphQuery(ClosedModel):
    """Which graph, and in which format: without one, Mermaid if the header `Accept` asks for it, else JSON."""

    version: VersionNumber | None = Field(
        default=None, description="Of which version; default: the active, else the newest one."
    )
    format: Literal["json", "mermaid"] | None = None


class TeamDiffQuery(ClosedModel):
    """Which versions to compare: `to`, default the newest one, with `from`, default the one before `to`."""

    from_: Annotated[VersionNumber | None, Field(alias="from")] = None
    to: VersionNumber | None = None


class _Build(ClosedModel):
    constraints: BuildConstraints = BuildConstraints()
    cases: _Cases = ()
    activate: bool = Field(default=True, description="Activate it once it is proven; an admin is asked if it is not.")
    partial: bool = Field(default=False, description="Also build a team that serves only a part of the goal.")
    thread_id: ThreadName | None = Field(
        default=None, description="The conversation of the run. Default: one of its own."
    )

    def _request(self, kind: BuildKind, goal: str, **fields: Any) -> BuildRequest:
        wanted = {name: getattr(self, name) for name in ("constraints", "cases", "activate", "partial")}
        return BuildRequest(kind=kind, goal=goal, **fields, **wanted)


class TeamBuild(_Build):
    """What a new team is to be good for. Its name is reserved until the build ends; without one, it is chosen."""

    goal: Annotated[str, Field(min_length=1, description="What the team is to do, in plain words.")]
    name: AgentName | None = Field(default=None, description="Its name, if you want to choose it.")

    def request(self) -> BuildRequest:
        """Return the build that the body stands for."""
        return self._request("team", self.goal, name=self.name)


class VersionRequest(_Build):
    """Either a whole `spec` to import, alone, or a `goal` to build the next version for."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["spec"]}, {"required": ["goal"]}]})

    spec: _SpecDocument | None = Field(default=None, description="A team spec, as `starling team schema` describes it.")
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


class ProofWish(ClosedModel):
    """The version to prove, default the active, else the newest one, and further cases to try it on."""

    version: VersionNumber | None = None
    cases: _Cases = ()
