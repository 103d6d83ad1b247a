"""Builds of teams: where they run, what is asked for, what a build may use of its run, and its outcome."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, Protocol

from pydantic import BaseModel, Field

from starling.core.agents import AgentName
from starling.core.closed_document import ClosedDocument
from starling.core.events.stream import AnyEvent
from starling.core.json import JsonObject
from starling.core.principal import Principal
from starling.core.teams.proofs import TrialRecord
from starling.core.teams.spec import Criterion, Example, Fixture, LongText, ServerName, ToolNames
from starling.core.teams.stars import StarSpec
from starling.core.tools import ToolDefinition

ACTIVATE_TEAM: Final = "architect.activate_team"
"""The name under which an admin is asked to approve the activation of a team, as if it were a tool call.

Only keys with the scope `admin` decide on it.
"""

QUESTION: Final = "question"
"""The step of a build that asks its caller what the goal leaves open. Only keys with the scope `teams` answer it."""

NOT_BUILT: Final = (
    *("capability_gap", "conflict", "forbidden", "goal_unclear", "not_found", "proof_failed"),
    *("quota_exceeded", "team_invalid"),
)
"""The codes of tasks that built no team: the reason is a report for whoever asked, with what to do."""


@dataclass(frozen=True, slots=True)
class BuildOrigin:
    """Where a build runs: the task `path` of a run, held under `fence`, of an epoch, for a caller."""

    caller: Principal
    run_id: str
    fence: int
    path: str
    trace_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Approval:
    """A person's decision on an activation; `by` is the id of the key that decided, `note` what was said."""

    approved: bool
    by: str
    note: str = ""


type BuildKind = Literal["team", "version", "proof"]


class BuildCase(ClosedDocument):
    """A case of the caller's own that a team is tried on, with its criteria."""

    input: LongText = Field(description="The request that the team gets.")
    fixtures: Annotated[tuple[Fixture, ...], Field(max_length=50)] = ()
    criteria: Annotated[tuple[Criterion, ...], Field(max_length=20)] = ()
    must_call: ToolNames = ()
    must_not_call: ToolNames = ()


class BuildConstraints(ClosedDocument):
    """What a design has to keep to."""

    servers: Annotated[tuple[ServerName, ...], Field(max_length=200)] = Field(
        default=(), description="Only these servers may be used. None given: all that your key may call."
    )
    members: Annotated[int, Field(ge=1, le=12)] | None = Field(default=None, description="At most so many members.")
    text: LongText | None = Field(default=None, description="Further demands, in words.")


class BuildRequest(ClosedDocument):
    """What a build is asked for.

    `team` designs a new team for `goal`; `version` changes the team `name`, starting from its `version` (None: the
    active, else the newest one); `proof` tries that version on its cases and designs nothing.
    """

    kind: BuildKind = "team"
    goal: str = ""
    name: AgentName | None = None
    version: int | None = None
    constraints: BuildConstraints = BuildConstraints()
    cases: Annotated[tuple[BuildCase, ...], Field(max_length=20)] = ()
    activate: bool = True
    partial: bool = False  # whether a team may be built that serves only a part of the goal


@dataclass(frozen=True, slots=True)
class Section:
    """One element of a prompt: data under a name, escaped where it is rendered. It has text or parts."""

    name: str
    text: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict[str, str])
    parts: "Sequence[Section]" = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """An agent that a member could be made of: a specialist by its `server`, or a `team`; the other one is empty.

    `score` compares candidates for one text; `tool` is the name of the tool that fits it best.
    """

    server: str
    team: str
    description: str
    tools: Sequence[ToolDefinition]
    score: float
    tool: str = ""


class BuildRun(Protocol):
    """The run that a build is a part of: models, searches, trials and questions, all journalled.

    A step that was recorded is answered from the journal when the run is resumed. Every method raises what ends or
    suspends a task: ModelError, SuspendedError, DeadlineExceededError, BudgetExhaustedError, JournalDivergedError,
    LeaseLostError, DatabaseUnavailableError.
    """

    @property
    def origin(self) -> BuildOrigin: ...

    @property
    def may_ask(self) -> bool:
        """Whether the caller may be asked a question now."""
        ...

    async def ask[D: BaseModel](self, step: str, prompt: str, sections: Sequence[Section], document: type[D]) -> D:
        """Return a model's answer as a document. `step` is unique in the build, `prompt` the name of its prompt."""
        ...

    async def candidates(self, step: str, texts: Sequence[str], limit: int) -> Sequence[Sequence[Candidate]]:
        """Return for each text the agents that fit it best, best first, of those that the caller may use.

        `step` is unique in the build.
        """
        ...

    def tools(self) -> Mapping[str, ToolDefinition]:
        """Return the definitions of all tools that the caller may use, by full name."""
        ...

    def clarify(self, step: str, question: str, options: Sequence[str]) -> str:
        """Return the caller's answer to a question, empty where there was none in time."""
        ...

    def approve_activation(self, team: str, version: int, details: JsonObject) -> Approval:
        """Return an admin's decision on the activation of a version, shown with its details."""
        ...

    async def try_case(self, star: StarSpec, case: Example) -> TrialRecord:
        """Have a team do the input of a case, with a recorder in place of tools that may change something."""
        ...

    def check_budget(self) -> None:
        """Return while the run has time left and was not refused more tokens."""
        ...

    def recorded(self, step: str) -> JsonObject | None:
        """Return what an earlier process recorded of a step, None if it recorded nothing."""
        ...

    def record(self, step: str, result: JsonObject, *events: AnyEvent) -> None:
        """Record the result of a step and emit its events, with the next flush."""
        ...

    async def flush(self) -> None:
        """Make what was recorded durable."""
        ...


@dataclass(frozen=True, slots=True)
class BuildOutcome:
    """The outcome of a build: a report for a person; `done` if it has what was asked for."""

    text: str
    done: bool
    code: str = ""  # why it is not done


class TeamBuilder(Protocol):
    """Builds and proves teams."""

    async def build(self, request: BuildRequest, run: BuildRun) -> BuildOutcome:
        """Do what is asked for, or say why it can't be done. Raises what `run` raises."""
        ...
