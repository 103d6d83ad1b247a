"""The published shape of an explanation. Fields may be added, never removed; codes may be added."""

from datetime import datetime
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from brain.explanation.rules.incident import CauseCode, RefKind
from starling.core.run_status import RunStatus

_ID = "01a1f8ac-cbf4-7cdd-97b7-5ad5f772744e"
_WRONG = (
    'Agent mcp_agent_weather called weather.forecast with {"city":"Limaa"} in task t1 (“The weather in Lima”); the '
    "tool refused these arguments: “There is no city 'Limaa'.”."
)
_CAUSE: dict[str, Any] = {
    "code": "wrong_argument",
    "text": _WRONG,
    "refs": [{"kind": "task", "id": "t1"}, {"kind": "call", "id": "t1.0.0"}, {"kind": "event", "id": "6"}],
    "task": "t1",
}
EXAMPLE: Final[dict[str, Any]] = {
    "run_id": _ID,
    "status": "failed",
    "cause": _CAUSE,
    "causes": [_CAUSE],
    "asked": {
        "text": "The request was accepted at 2026-11-20 11:12:01 UTC: “What is the weather in Lima?”",
        "request": "What is the weather in Lima?",
        "mode": "MODERATE",
        "channel": "CHAT",
        "agent": None,
        "at": "2026-11-20T11:12:01.250000Z",
    },
    "planned": {
        "text": "One version of a plan with 1 task: “One task for the weather.”",
        "versions": [
            {
                "star": "",
                "version": 1,
                "why": "One task for the weather.",
                "tasks": [
                    {
                        "path": "t1",
                        "agent": "mcp_agent_weather",
                        "task": "The weather in Lima",
                        "depends_on": [],
                        "status": "failed",
                    }
                ],
                "refs": [{"kind": "event", "id": "2"}],
            }
        ],
    },
    "failures": [],
    "verdicts": [],
    "passed_over": [],
    "retried": [],
    "degraded": [],
    "waited": [],
    "cost": {
        "text": "1,200 tokens in 3 model calls and 3 tool calls, in 2.1 s.",
        "tokens": 1200,
        "input_tokens": 1000,
        "output_tokens": 200,
        "estimated": False,
        "model_calls": 3,
        "tool_calls": 3,
        "seconds": 2.1,
        "money": None,
        "by_agent": [],
    },
    "pruned": [],
}


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Ref(_Part):
    """A row that a sentence rests on: the number of a step or an event, the id of a call, the path of a task."""

    kind: RefKind
    id: str


class Cause(_Part):
    """What went wrong: a code of a closed set, a sentence, and the rows that show it."""

    code: CauseCode
    text: str
    refs: list[Ref]
    task: str | None = None


class Asked(_Part):
    """What was asked. `agent` is set where the request went to one agent without a plan."""

    text: str
    request: str
    mode: str
    channel: str
    agent: str | None = None
    at: datetime


class PlannedTask(_Part):
    """A task as this version of the plan had it, and what became of it in the end."""

    path: str
    agent: str
    task: str
    depends_on: list[str]
    status: Literal["pending", "running", "waiting", "approved", "failed"]


class PlanVersion(_Part):
    """A version of a plan, and why the supervisor made it. `star` is the path of the team, empty for the main star."""

    star: str
    version: int
    why: str
    tasks: list[PlannedTask]
    refs: list[Ref]


class Planned(_Part):
    """What was planned and why, over all versions."""

    text: str
    versions: list[PlanVersion]


class FailureNote(_Part):
    """A task that failed, or never ran. `followed_from` is the task whose failure it follows from."""

    task: str
    agent: str
    code: str
    text: str
    followed_from: str | None = None
    recovered: bool
    refs: list[Ref]


class VerdictNote(_Part):
    """A verdict, and the calls that it rested on."""

    task: str
    attempt: int
    status: Literal["APPROVED", "FIXED", "REJECTED"]
    text: str
    reasons: list[str]
    rested_on: list[str]
    refs: list[Ref]


class PassedOver(_Part):
    """An error of a tool that an agent passed over in a result that was approved."""

    task: str
    agent: str
    tool: str
    call: str
    text: str
    refs: list[Ref]


class Retry(_Part):
    """What was done more than once: a task, an attempt, a call, a question to a model, or the run on another worker."""

    kind: Literal["task", "attempt", "call", "model", "run"]
    task: str | None = None
    count: int
    text: str
    refs: list[Ref]


class DegradedNote(_Part):
    """A part of the answer that is missing."""

    part: str
    reason: str
    text: str


class Wait(_Part):
    """What the run waited for: a person, the queue. `seconds` is the time so far where it still waits."""

    kind: Literal["approval", "clarification", "budget", "in_doubt", "queue"]
    state: Literal["open", "resolved", "cancelled", "expired", "over"]
    seconds: float
    text: str
    refs: list[Ref]


class AgentCost(_Part):
    """What an agent, a reviewer, the supervisor or the final answer cost. Times are seconds of tool calls."""

    agent: str
    tokens: int
    model_calls: int
    tool_calls: int
    tool_seconds: float


class Cost(_Part):
    """What the run cost. `money` is None: no prices are known."""

    text: str
    tokens: int
    input_tokens: int
    output_tokens: int
    estimated: bool
    model_calls: int
    tool_calls: int
    seconds: float
    money: float | None = None
    by_agent: list[AgentCost]


class Missing(_Part):
    """Rows that are no longer kept, or were not read, and what can't be told without them."""

    what: str
    text: str


class Explanation(_Part):
    """Why a run came to what it came to, from its rows. `cause` is the first of `causes`, the root cause."""

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra={"examples": [EXAMPLE]})

    run_id: str
    status: RunStatus
    cause: Cause | None = Field(description="The root cause; null where nothing went wrong.")
    causes: list[Cause] = Field(description="What went wrong and was not made up for, the root cause first.")
    asked: Asked
    planned: Planned
    failures: list[FailureNote] = Field(description="Tasks that failed, in order, with what followed from each.")
    verdicts: list[VerdictNote]
    passed_over: list[PassedOver]
    retried: list[Retry]
    degraded: list[DegradedNote]
    waited: list[Wait]
    cost: Cost
    pruned: list[Missing]
