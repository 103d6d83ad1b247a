"""Team specs: the closed document that a team is made from, and what is found wrong with one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Field, StringConstraints

from starling.core.agents import AgentName
from starling.core.closed_document import ClosedDocument
from starling.core.errors import InvalidRequestError
from starling.core.json import Json, as_read, digest, storable, storable_text
from starling.core.principal import Grant
from starling.core.tool_calls import MemberApproval, ReviewPolicy
from starling.core.validation_errors import AGENT_NAME, MEMBER_NAME, TOOL_NAME

SCHEMA_ID: Final = "urn:starling:team-spec:1"


def _stored(value: Json) -> Json:
    """Return JSON as it is read from the database, so that the hash of a spec is also that of the stored one."""
    return as_read(storable(value))


type _Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1), AfterValidator(storable_text)]
type ShortText = Annotated[_Text, StringConstraints(max_length=300)]
type LongText = Annotated[_Text, StringConstraints(max_length=4_000)]
type Identifier = Annotated[str, StringConstraints(pattern=AGENT_NAME)]
type ToolName = Annotated[str, StringConstraints(pattern=TOOL_NAME, max_length=200), AfterValidator(storable_text)]
type ServerName = Annotated[str, StringConstraints(min_length=1, max_length=100), AfterValidator(storable_text)]
type ToolNames = Annotated[tuple[ToolName, ...], Field(max_length=200)]
type StorableJson = Annotated[Json, AfterValidator(_stored)]


class TeamMember(ClosedDocument):
    """One agent of a team: of one server, of another team, or a writer without tools."""

    name: Annotated[str, StringConstraints(pattern=MEMBER_NAME)] = Field(description="Its name, unique in the team.")
    role: ShortText = Field(description="What it is, in a few words.")
    goal: LongText = Field(description="What it works for.")
    backstory: LongText | None = Field(default=None, description="What it knows and how it works.")
    server: ServerName | None = Field(default=None, description="The one server whose tools it may call.")
    tools: ToolNames = Field(
        default=(), description="Full names `server.tool` of that server. None given: all that the team is granted."
    )
    team: AgentName | None = Field(default=None, description="Name of an active team that it stands for.")
    runtime: Literal["crewai", "native"] = Field(default="crewai", description="What executes it.")
    model_role: Literal["router", "reasoning", "coding"] = Field(
        default="reasoning", description="The purpose whose model it asks."
    )
    reflect: ReviewPolicy = Field(
        default="always", description="Which of its results are reviewed: `risky` are those of calls with effects."
    )
    approval: MemberApproval = Field(
        default="policy",
        description="`policy`: what the server's configuration demands. `effects`: a person approves every call that "
        "may change something.",
    )


class Criterion(ClosedDocument):
    """What a good result fulfils."""

    id: Identifier
    text: ShortText = Field(description="What is demanded, in words.")
    kind: Literal["text_contains", "tool_called", "artifact", "judged"]
    value: LongText | None = Field(
        default=None, description="The text, the full name of the tool, or the name of the artifact; none for `judged`."
    )


class Fixture(ClosedDocument):
    """The result that a tool gives in a trial."""

    tool: ToolName
    arguments: Annotated[dict[str, Json], AfterValidator(_stored)] | None = Field(
        default=None, description="Of which call; none given: of any."
    )
    result: StorableJson = Field(description="What the call returns.")


class Example(ClosedDocument):
    """A case that a team is tried on."""

    id: Identifier
    input: LongText
    fixtures: Annotated[tuple[Fixture, ...], Field(max_length=50)] = ()
    criteria: Annotated[tuple[Identifier, ...], Field(max_length=50)] = Field(
        default=(), description="Ids of the criteria that its result has to fulfil."
    )
    must_call: ToolNames = ()
    must_not_call: ToolNames = ()


class TeamLimits(ClosedDocument):
    """What one call of the team may use, beside what its run has left."""

    seconds: Annotated[float, Field(gt=0, le=86_400)] | None = None
    iterations: Annotated[int, Field(ge=1, le=50)] | None = Field(
        default=None, description="How often its supervisor may decide."
    )
    tokens: Annotated[int, Field(ge=1, le=10**9)] | None = None
    members: Annotated[int, Field(ge=1, le=12)] = Field(default=12, description="How many members it may have.")


class TeamGrants(ClosedDocument):
    """What the team asks for: every tool of `servers`, and single `tools`. Both empty: what its members name."""

    servers: Annotated[tuple[ServerName, ...], Field(max_length=200)] = ()
    tools: ToolNames = ()

    @property
    def grant(self) -> Grant | None:
        """The grant that these are, None where both are empty."""
        return Grant(frozenset(self.servers), frozenset(self.tools)) if self.servers or self.tools else None


class TeamSpec(ClosedDocument):
    """A team: a supervisor's instructions and the members that it gives tasks to. Nothing in it is evaluated."""

    version: Literal[1] = Field(default=1, description="Version of this format.")
    name: AgentName = Field(description="Name of the team, unique among your agents and teams.")
    purpose: ShortText = Field(description="What it is good for, as the supervisor of the main star reads it.")
    instructions: LongText | None = Field(default=None, description="What its own supervisor is told.")
    members: Annotated[tuple[TeamMember, ...], Field(min_length=1, max_length=12)]
    criteria: Annotated[tuple[Criterion, ...], Field(max_length=50)] = ()
    examples: Annotated[tuple[Example, ...], Field(max_length=50)] = ()
    limits: TeamLimits = TeamLimits()
    grants: TeamGrants = TeamGrants()

    @property
    def hash(self) -> str:
        """Digest of the whole spec."""
        return digest(self.model_dump(mode="json"))


def team_schema() -> dict[str, Any]:
    """Return the published JSON schema of team specs."""
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID}
    return about | TeamSpec.model_json_schema()


MOST_FINDINGS: Final = 50
"""How many findings a document has at most: to name what was meant takes time for each."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with a team spec: where (`members[1].tools[0]`), by which rule, why, and what to do."""

    path: str
    rule: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        place = f"{self.path}: " if self.path else ""
        return f"{place}{self.reason} {self.remedy}".rstrip()


class TeamInvalidError(InvalidRequestError):
    """A team spec can't be used as it is; `findings` say why."""

    code: ClassVar[str] = "team_invalid"

    def __init__(self, findings: Sequence[Finding], message: str = "The team spec is wrong.") -> None:
        super().__init__(message, "; ".join(map(str, findings)))
        self.findings = tuple(findings)
