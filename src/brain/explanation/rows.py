"""The rows of a run that an explanation is made of, as they were read. Long texts are cut when they are read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from brain.skills.skill import SkillCall
from starling.core.principal import Grant
from starling.core.run_status import RunStatus
from starling.infra.postgres.runs.interrupts import StoredInterrupt
from starling.infra.postgres.runs.ledger import LedgerRow

TEXT_CHARS = 4_000
"""How much is read of one text: of a result, an answer or a reason."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run. `last_event` is the number of its last event; events up to number `trimmed` were pruned.

    `claims` counts the workers that took it, one after another; `isolation` and `crashes` tell how many were lost.
    """

    id: str
    status: RunStatus
    epoch: int
    input: str
    config: Mapping[str, Any]
    key_id: str
    grant: Grant | None
    created_at: datetime
    started_at: datetime | None = None
    deadline: datetime | None = None
    ended_at: datetime | None = None
    crashes: int = 0
    claims: int = 0
    isolation: str | None = None
    cancel_requested: bool = False
    last_event: int = 0
    trimmed: int = 0
    result: Mapping[str, Any] | None = None

    @property
    def code(self) -> str:
        """Why the run did not succeed; empty if it did, or has not ended."""
        return str((self.result or {}).get("code") or "")


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event of the run's stream."""

    seq: int
    type: str
    data: Mapping[str, Any]
    at: datetime


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step; `number` counts from 1 in the order of `starling run show`."""

    number: int
    type: str
    description: str
    metadata: Mapping[str, Any]
    at: datetime

    @property
    def path(self) -> str:
        """Where the step was made: `t1`, `t1/review`, `supervisor/1`."""
        return str(self.metadata.get("path") or "")


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """A model's answer in the journal. `malformed` are the indices of tool calls whose arguments can't be read."""

    path: str
    position: int
    content: str
    fault: str = ""
    malformed: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """The outcome in the journal of a call that only reads: why it failed, and how long it took."""

    call_id: str
    code: str
    observation: str
    milliseconds: float


@dataclass(frozen=True, slots=True)
class SkillRow:
    """A skill as it is stored now."""

    id: str
    state: str
    reason: str
    template: str
    calls: tuple[SkillCall, ...]


@dataclass(frozen=True, slots=True)
class KeyRow:
    """The key that the run was requested with, as it is now."""

    name: str
    revoked_at: datetime | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RunRows:
    """All rows that tell of a run.

    `servers` are those of the run's epoch that its tenant sees, each with its state then; `tools` has the names of the
    tools of each that was called. `artifacts` are the ids of whole results that are still kept. `unread` says what was
    not read because the run has too much of it.
    """

    run: RunRow
    events: Sequence[EventRow] = ()
    steps: Sequence[StepRow] = ()
    answers: Sequence[AnswerRow] = ()
    outcomes: Sequence[OutcomeRow] = ()
    ledger: Sequence[LedgerRow] = ()
    interrupts: Sequence[StoredInterrupt] = ()
    skills: Sequence[SkillRow] = ()
    key: KeyRow | None = None
    servers: Mapping[str, str] = field(default_factory=dict[str, str])
    tools: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    artifacts: frozenset[str] = frozenset()
    unread: Sequence[str] = ()
