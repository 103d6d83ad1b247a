"""Events of a run that builds a team."""

from typing import Literal

from pydantic import Field

from starling.core.closed_document import ClosedDocument
from starling.core.events.run_events import Event


class DesignedMember(ClosedDocument):
    """A member of a team that was designed: of a `server`, of a `team`, or a writer without either."""

    name: str
    role: str
    server: str | None = None
    team: str | None = None
    tools: list[str] = Field(default=[])


class MissingPart(ClosedDocument):
    """A part of a goal that nothing serves, and what came nearest."""

    part: str
    nearest: list[str] = Field(default=[])


class Design(Event):
    """A team was designed, in the `attempt`th try. `path` is that of the task that builds it."""

    type: Literal["design"] = "design"
    path: str
    attempt: int
    team: str
    purpose: str
    members: list[DesignedMember]
    missing: list[MissingPart] = Field(default=[])


class CheckFinding(ClosedDocument):
    """What a check found: where in the spec, by which rule, why, and what to do."""

    path: str
    rule: str
    reason: str
    remedy: str


class Checks(Event):
    """A design was checked; without findings it is sound."""

    type: Literal["checks"] = "checks"
    path: str
    attempt: int
    findings: list[CheckFinding]


class CriterionReport(ClosedDocument):
    """Whether a result fulfils a criterion, and why not. What a case must and must not call counts as criteria.

    One that nobody could judge is not `decided`, and counts neither way.
    """

    id: str
    met: bool
    reason: str = ""
    decided: bool = True


class Proof(Event):
    """A team was tried on one of its cases. `live`, `fixture` and `simulated` count its tool calls by their answers.

    `passed` says whether no decided criterion is unmet, `counts` whether one about the answer is decided; `trial_path`
    is where in the run it was tried.
    """

    type: Literal["proof"] = "proof"
    path: str
    team: str
    case: str
    passed: bool
    counts: bool = True
    criteria: list[CriterionReport]
    live: int
    fixture: int
    simulated: int
    trial_path: str


class Published(Event):
    """A version of a team was stored; `epoch` is the first one that has it, None unless it is active."""

    type: Literal["published"] = "published"
    path: str
    team: str
    version: int
    state: Literal["draft", "proven", "unproven", "active"]
    epoch: int | None = None
