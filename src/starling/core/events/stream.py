"""Any event, and an event as it stands in its run's stream."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

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


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event as it stands in its run's stream; `seq` counts from 1 without a gap.

    `json` is the JSON text of `data` where the process that wrote the event has it.
    """

    seq: int
    type: str
    data: Mapping[str, Any]
    json: bytes = field(default=b"", compare=False, repr=False)
