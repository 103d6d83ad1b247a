"""The documents that models answer with: the supervisor's decision and the reviewer's verdict."""

from typing import Annotated, ClassVar, Literal, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from brain.prompts import response_schema
from starling.core.llm import ResponseSchema


def _upper(value: object) -> object:
    return value.strip().upper() if isinstance(value, str) else value


class _Document(BaseModel):
    """A document of a model: what can be left out has a default, and `null` is left out."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    EXPECTED: ClassVar[str] = "one JSON object"

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        given = cast("dict[str, object]", value)
        return {name: item for name, item in given.items() if item is not None}


class Assignment(_Document):
    """A task for one agent."""

    task_id: Annotated[str, Field(min_length=1, max_length=40, pattern=r"^[A-Za-z0-9_-]+$")]
    agent: str
    task: Annotated[str, Field(min_length=1)]
    depends_on: list[str] = []


class Unserved(_Document):
    """A part of the request that no agent of the star can serve."""

    part: str
    reason: str = ""


class Decision(_Document):
    """What the supervisor decides in one call: plan, tasks, or a direct reply."""

    EXPECTED: ClassVar[str] = (
        'one JSON object with "plan", "selected_agents" (each "task_id", "agent", "task", "depends_on") and "reply"'
    )
    NEEDED_IF_CUT: ClassVar[tuple[str, ...]] = ("selected_agents", "reply")

    thought_process: str = ""
    plan: list[str] = []
    selected_agents: list[Assignment] = []
    reply: str = ""
    assumptions: list[str] = []
    unserved: list[Unserved] = []
    look_for: list[str] = []
    is_request_satisfied: bool = False
    is_in_loop: bool = False
    is_progress_being_made: bool = True

    @field_validator("selected_agents")
    @classmethod
    def _own_ids(cls, value: list[Assignment]) -> list[Assignment]:
        ids = [item.task_id for item in value]
        if twice := sorted({task_id for task_id in ids if ids.count(task_id) > 1}):
            raise ValueError(f"each task needs a task_id of its own, but {', '.join(twice)} is given more than once")
        return value


class OpenDecision(Decision):
    """A decision that may be a question instead."""

    question: str = ""
    options: list[str] = []


class Verdict(_Document):
    """The review of one attempt."""

    EXPECTED: ClassVar[str] = (
        'one JSON object with "status" (APPROVED, FIXED or REJECTED), "reasons", and "refined_output" if FIXED'
    )
    NEEDED_IF_CUT: ClassVar[tuple[str, ...]] = ("status", "refined_output")
    MUST_AGREE: ClassVar[tuple[str, ...]] = ("status",)

    status: Annotated[Literal["APPROVED", "FIXED", "REJECTED"], BeforeValidator(_upper)]
    refined_output: str = ""
    reasons: list[str] = []
    evidence: list[str] = []
    changed: list[str] = []


def decision_schema(*, may_ask: bool, may_look: bool) -> ResponseSchema:
    """Return the schema of a decision that may ask the user, and may look for agents that it isn't shown."""
    if may_look:
        return _OPEN_LOOKING_DECISION if may_ask else _LOOKING_DECISION
    return OPEN_DECISION if may_ask else DECISION


_NAME = "supervisor_decision"
_QUESTION, _LOOKING = ("question", "options"), ("look_for",)
DECISION = response_schema(_NAME, Decision, without=_LOOKING)
OPEN_DECISION = response_schema(_NAME, OpenDecision, optional=_QUESTION, without=_LOOKING)
_LOOKING_DECISION = response_schema(_NAME, Decision)
_OPEN_LOOKING_DECISION = response_schema(_NAME, OpenDecision, optional=_QUESTION)
VERDICT = response_schema("verdict", Verdict)
