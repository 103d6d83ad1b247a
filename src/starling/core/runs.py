"""A run: what is asked, what is allowed, what came of it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from starling.core.events import Usage
from starling.core.principal import Grant


class Mode(StrEnum):
    """How bold a run may be."""

    CONSERVATIVE = "CONSERVATIVE"
    MODERATE = "MODERATE"
    EXPLORATORY = "EXPLORATORY"


class Channel(StrEnum):
    """Where a request comes from."""

    CHAT = "CHAT"
    CODE_TASK = "CODE_TASK"
    SYSTEM_HEALTH = "SYSTEM_HEALTH"


class RunStatus(StrEnum):
    """Where a run stands. The last five never change again."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    BUDGET_EXHAUSTED = "budget_exhausted"
    PARKED = "parked"

    @property
    def terminal(self) -> bool:
        return self not in (RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING)


type FinalStatus = Literal["succeeded", "failed", "cancelled", "budget_exhausted", "parked"]


class RunLimits(BaseModel):
    """Tighter limits for one run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run_seconds: Annotated[float, Field(gt=0, le=86_400)] | None = None
    tool_iterations: Annotated[int, Field(ge=1, le=50)] | None = None
    supervisor_calls: Annotated[int, Field(ge=1, le=50)] | None = None
    tokens: Annotated[int, Field(ge=1)] | None = None
    max_clarifications: Annotated[int, Field(ge=0)] | None = None  # 0: nobody is there to answer


class RunConfig(BaseModel):
    """The closed `config` of a request."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Mode = Mode.MODERATE
    channel: Channel = Channel.CHAT
    limits: RunLimits = RunLimits()


@dataclass(frozen=True, slots=True)
class Run:
    """A claimed run, as its worker sees it."""

    tenant: str
    id: str
    thread_id: str
    branch_id: str
    epoch: int
    graph_version: int
    input: str
    config: RunConfig
    correlation_id: str
    trace_id: str
    fence: int
    crashes: int
    remaining_seconds: float  # until its deadline, by the database's clock
    claimed_at: datetime  # when this life began, by that clock
    grant: Grant | None = None  # what its caller may reach
    caller: str = ""  # the id of its caller's key
    clarifications: int = 0  # that were asked on its branch since a run there last did without
    cancelled: bool = False  # somebody asked for its end before this life began


class Citation(BaseModel):
    """Where a part of the answer comes from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: int
    task_id: str
    agent: str
    tools: list[str]


class Degradation(BaseModel):
    """A part of the answer that couldn't be had, and why."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    part: str
    reason: str


class Step(BaseModel):
    """One entry of a run's record."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Literal["llm_call", "tool_call", "plan", "summary", "warning"]
    description: str
    metadata: dict[str, Any]


class RunResult(BaseModel):
    """What a run came to; all but the steps and ids of the whole result of `POST /process`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: FinalStatus
    reply: str
    plan: list[str] = []
    citations: list[Citation] = []
    assumptions: list[str] = []
    degraded: list[Degradation] = []
    usage: Usage = Usage()
