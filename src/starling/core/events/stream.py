"""Any event of a run's stream."""

from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter

from starling.core.events.build_events import Checks, Design, Proof, Published
from starling.core.events.run_events import (
    ApprovalRequired,
    BudgetRequired,
    Clarification,
    Done,
    Failure,
    Gap,
    InDoubt,
    Plan,
    Reflection,
    Route,
    RunStarted,
    TaskResult,
    TaskStart,
    Thinking,
    ToolEvent,
    ToolLog,
    ToolProgress,
    ToolResult,
    ToolStart,
    Warn,
)

type AnyEvent = Annotated[
    RunStarted
    | Plan
    | Route
    | TaskStart
    | TaskResult
    | Thinking
    | ToolStart
    | ToolResult
    | ToolProgress
    | ToolLog
    | ToolEvent
    | Reflection
    | Design
    | Checks
    | Proof
    | Published
    | Clarification
    | ApprovalRequired
    | BudgetRequired
    | InDoubt
    | Gap
    | Warn
    | Failure
    | Done,
    Field(discriminator="type"),
]

ANY_EVENT: TypeAdapter[AnyEvent] = TypeAdapter(AnyEvent, config=ConfigDict(defer_build=True))
