"""The status of a run."""

from dataclasses import dataclass
from enum import StrEnum


class RunStatus(StrEnum):
    """Status of a run. The last five are terminal and never change."""

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


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run has ended; `code` says why it did not succeed."""

    status: RunStatus
    code: str | None
