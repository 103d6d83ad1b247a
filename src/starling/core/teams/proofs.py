"""Proofs of teams: what a version did on its cases, and whether that shows that it works."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from pydantic import computed_field

from starling.core.closed_document import ClosedDocument
from starling.core.events.build_events import CriterionReport
from starling.core.tool_calls import AnswerSource

type ProofState = Literal["proven", "unproven", "failed"]
LOWEST_FIRST: Final[Sequence[ProofState]] = ("failed", "unproven", "proven")


class TrialCall(ClosedDocument):
    """A tool call of a trial, by the path of its task.

    `member` had the task, or the team that it is a part of; it is empty in trials of earlier versions. `result` is what
    the judge sees; reports don't keep it.
    """

    tool: str
    path: str
    status: Literal["succeeded", "failed"]
    source: AnswerSource
    member: str = ""
    result: str = ""


class TrialVerdict(ClosedDocument):
    """The outcome of a member's task in a trial; `reason` says why it failed."""

    member: str
    status: Literal["approved", "failed"]
    reason: str = ""


class TrialRecord(ClosedDocument):
    """What a team did with the input of one case. `path` is where in the run; `tokens` of models, `seconds` of time.

    `failure` says why the team had no answer, empty where `reply` is one. `artifacts` are the names of those kept.
    """

    path: str
    reply: str
    failure: str = ""
    calls: tuple[TrialCall, ...] = ()
    verdicts: tuple[TrialVerdict, ...] = ()
    artifacts: tuple[str, ...] = ()
    tokens: int = 0
    seconds: float = 0.0


class CaseReport(ClosedDocument):
    """A case with the outcome of its trial. `simulation_only`: no call was answered live, and at least one was.

    It `counts` where a criterion about the answer is decided: a text, or what a judge says. It passed unless a decided
    criterion is unmet.
    """

    id: str
    passed: bool
    simulation_only: bool
    criteria: tuple[CriterionReport, ...]
    trial: TrialRecord
    counts: bool = True

    @property
    def outcome(self) -> Literal["passed", "failed", "not judged"]:
        """What it shows of the team."""
        if not self.passed:
            return "failed"
        return "passed" if self.counts else "not judged"


class PartReport(ClosedDocument):
    """A part of the goal, the members that do it, and the ids of the cases that tried it; without any it is untried."""

    part: str
    members: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()


class ProofReport(ClosedDocument):
    """A proof of one version: `score` is the share of decided criteria that are met, `threshold` what was demanded.

    `tools` has the hash of every tool's definition that the team could call. The proof holds for exactly these.
    """

    state: ProofState
    score: float
    threshold: float
    cases: tuple[CaseReport, ...]
    spec_hash: str
    tools: dict[str, str]
    run_id: str
    trace_id: str
    parts: tuple[PartReport, ...] = ()

    @property
    def passed(self) -> int:
        """How many cases passed and count."""
        return sum(case.outcome == "passed" for case in self.cases)

    @computed_field
    @property
    def not_judged(self) -> list[str]:
        """The parts that no case tried, the answers that no criterion is about, and undecided criteria, in words."""
        found = [f"No case tried the part {one.part!r} by live results." for one in self.parts if not one.cases]
        for case in self.cases:
            undecided = [f"Nobody judged {one.id!r} of {case.id}." for one in case.criteria if not one.decided]
            unjudged = [] if case.counts else [f"Nobody judged the answer of {case.id}."]
            found += undecided or unjudged
        return found


def outdated(proved: Mapping[str, str], now: Mapping[str, str]) -> Sequence[str]:
    """Return the tools, sorted, that were changed or removed since a proof, which holds no longer then.

    Both have the hash of each tool's definition by its full name: that of the proof, and that of now.
    """
    return sorted(tool for tool, pin in proved.items() if not pin or now.get(tool) != pin)
