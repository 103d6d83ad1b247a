"""The rows that a document is read from, beside events, interrupts and feedback."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from starling.core.json import JsonObject
from starling.core.run_document.document import RunAhead, RunFailure
from starling.core.run_status import RunStatus


@dataclass(frozen=True, slots=True)
class RunRow:
    """The row of a run.

    `events` is the number of its last event; events up to number `trimmed`, and all steps then, were pruned.
    `claims` is how often a worker took it.
    """

    run_id: str
    thread_id: str
    trace_id: str
    correlation_id: str
    epoch: int
    status: RunStatus
    input: str
    config: JsonObject
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    events: int = 0
    claims: int = 0
    trimmed: int = 0
    result: Mapping[str, Any] | None = None
    why: RunFailure | None = None
    behind: RunAhead | None = None


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event of a run's stream; `data` as its JSON has it."""

    seq: int
    type: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step; `number` counts from 1, `metadata` is as the step has it."""

    number: int
    type: str
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """A model's answer in the journal. `malformed` are the indices of tool calls whose arguments could not be read."""

    path: str
    position: int
    content: str
    malformed: frozenset[int] = field(default_factory=frozenset[int])


@dataclass(frozen=True, slots=True)
class CallRow:
    """The ledger's row of a call that may change something; `code` is that of its outcome."""

    call_id: str
    effect: str
    state: str
    code: str
    sent_at: datetime | None
    settled_at: datetime | None
    settled_by: str | None


@dataclass(frozen=True, slots=True)
class Kept:
    """The ids of the artifacts that are still kept, None where they weren't read.

    `unread` are sentences about kinds of rows of which only some were read.
    """

    artifacts: frozenset[str] | None
    unread: tuple[str, ...] = ()
