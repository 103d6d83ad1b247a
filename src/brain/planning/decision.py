"""The documents that models answer with: the supervisor's decision and the reviewer's verdict."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from starling.core.llm import ResponseSchema


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Assignment(_Document):
    """A task for one agent."""

    task_id: Annotated[str, Field(min_length=1, max_length=40, pattern=r"^[A-Za-z0-9_-]+$")]
    agent: str
    task: Annotated[str, Field(min_length=1)]
    depends_on: list[str]


class Unserved(_Document):
    """A part of the request that no agent of the star can serve."""

    part: str
    reason: str


class Decision(_Document):
    """What the supervisor decides in one call: plan, tasks, or a direct reply."""

    thought_process: str
    plan: list[str]
    selected_agents: list[Assignment]
    reply: str
    assumptions: list[str]
    unserved: list[Unserved]
    is_request_satisfied: bool
    is_in_loop: bool
    is_progress_being_made: bool

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

    status: Literal["APPROVED", "FIXED", "REJECTED"]
    refined_output: str
    reasons: list[str]
    evidence: list[str]
    changed: list[str]


DECISION = ResponseSchema("supervisor_decision", Decision.model_json_schema())
OPEN_DECISION = ResponseSchema("supervisor_decision", OpenDecision.model_json_schema(mode="serialization"))
VERDICT = ResponseSchema("verdict", Verdict.model_json_schema())
