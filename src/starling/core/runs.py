"""Runs: configuration, status and result."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import Field, StringConstraints

from starling.core.closed_document import ClosedDocument
from starling.core.events.run_events import Change, Citation, Degradation, Usage
from starling.core.forks import START, ForkChanges, ForkOrigin
from starling.core.principal import Grant, Scope
from starling.core.run_status import RunStatus as RunStatus  # noqa: PLC0414 - exported from here, too
from starling.core.teams.building import BuildRequest
from starling.core.tool_calls import ReviewPolicy


class Mode(StrEnum):
    """How cautious a run is; governance derives limits from it."""

    CONSERVATIVE = "CONSERVATIVE"
    MODERATE = "MODERATE"
    EXPLORATORY = "EXPLORATORY"


class Channel(StrEnum):
    """Where a request comes from."""

    CHAT = "CHAT"
    CODE_TASK = "CODE_TASK"
    SYSTEM_HEALTH = "SYSTEM_HEALTH"


INSTRUCTIONS_CHARS: Final = 32_000
"""How long the instructions of a client may be."""

type FinalStatus = Literal["succeeded", "failed", "cancelled", "budget_exhausted", "parked"]


class RunLimits(ClosedDocument):
    """Tighter limits for one run."""

    run_seconds: Annotated[float, Field(gt=0, le=86_400)] | None = None
    tool_iterations: Annotated[int, Field(ge=1, le=50)] | None = None
    supervisor_calls: Annotated[int, Field(ge=1, le=50)] | None = None
    tokens: Annotated[int, Field(ge=1)] | None = None
    max_clarifications: Annotated[int, Field(ge=0)] | None = None  # 0: never ask the user


class RunConfig(ClosedDocument):
    """The closed `config` of a request."""

    mode: Mode = Mode.MODERATE
    channel: Channel = Channel.CHAT
    limits: RunLimits = RunLimits()
    reflect: ReviewPolicy | None = Field(
        default=None,
        exclude_if=lambda reflect: reflect is None,
        description="Which results are reviewed: `always`, `risky` (of tasks with calls that may change something) or "
        "`never`. It replaces the default, `always`, where neither tool nor agent nor governance sets a policy. Where "
        "one of them does, it can only make the review stricter.",
    )
    replan: Literal["auto", "always"] = Field(
        default="auto",
        exclude_if=lambda replan: replan == "auto",
        description="When a supervisor is asked again: `auto` where there is something to decide, `always` after each "
        "round of results, as long as `supervisor_calls` allows.",
    )
    agent: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][A-Za-z0-9_.-]{0,127}$")] | None = Field(
        default=None,
        exclude_if=lambda agent: agent is None,
        description="Name of the agent that gets the whole request as its one task; no supervisor is asked.",
    )
    instructions: Annotated[str, StringConstraints(max_length=INSTRUCTIONS_CHARS)] | None = Field(
        default=None,
        exclude_if=lambda instructions: instructions is None,
        description="What the client says of the conversation; supervisor and QA are shown it as data.",
    )


class ForkRequest(ClosedDocument, defer_build=False):
    """Where a fork of a run begins, what is different in it, and the governance of the caller who forks."""

    at: str = Field(
        default=START,
        max_length=200,
        description="`start`, a decision (`d2`: what that saw) or a task of the main plan (`t3`: its plan and the "
        "results that don't depend on it).",
    )
    changes: ForkChanges = Field(default=ForkChanges(), description="All but `input` need the scope `admin`.")
    live: bool = Field(default=False, description="Make calls that may change something: else they are simulated.")
    mode: Mode = Mode.MODERATE
    channel: Channel = Channel.CHAT
    limits: RunLimits = RunLimits()


class DirectCall(ClosedDocument):
    """The tool call that a run consists of: no model is asked. `tool` is its full name."""

    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """A run that a worker has claimed."""

    tenant: str
    id: str
    thread_id: str
    branch_id: str
    epoch: int
    input: str
    config: RunConfig
    correlation_id: str
    trace_id: str
    fence: int
    crashes: int
    remaining_seconds: float  # until its deadline, by the database's clock
    claimed_at: datetime  # start of this claim, by the database's clock
    grant: Grant | None = None  # what its caller may call
    caller: str = ""  # id of the caller's key
    clarifications: int = 0  # asked on its branch since the last run without one
    has_history: bool = True  # False for the first run of a branch
    cancelled: bool = False  # cancellation was requested before this claim
    scopes: frozenset[Scope] = frozenset(Scope)  # of its caller
    suspected: bool = False  # its process ended while it executed the run, perhaps because of it
    forked_from: ForkOrigin | None = None
    build: BuildRequest | None = None  # what the agent `architect` is to build, beside the goal in `input`
    lost_worker: str = ""  # that held it until this claim without handing it back; it may still be running
    call: DirectCall | None = None  # what its server's specialist is to call, in place of what a model would choose
    parent_span: str | None = None  # of the caller's trace, in which the run's spans then are


class Step(ClosedDocument):
    """One entry of a run's record."""

    type: Literal["llm_call", "tool_call", "plan", "summary", "warning"]
    description: str
    metadata: dict[str, Any]


class RunResult(ClosedDocument):
    """Result of a run: the response of `POST /process` without steps and ids.

    `code` says why a run did not succeed, None if it did; `missing` why parts of the answer are missing, for metrics.
    """

    status: FinalStatus
    reply: str
    plan: list[str] = Field(default=[])
    citations: list[Citation] = Field(default=[])
    assumptions: list[str] = Field(default=[])
    degraded: list[Degradation] = Field(default=[])
    usage: Usage = Usage()
    code: str | None = None
    effects: list[Change] = Field(default=[])
    missing: frozenset[str] = Field(default=frozenset(), exclude=True)
