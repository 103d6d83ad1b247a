"""Where a build runs, and the names of what it asks people."""

from dataclasses import dataclass
from typing import Final

from starling.core.principal import Principal

ACTIVATE_TEAM: Final = "architect.activate_team"
"""The name under which an admin is asked to approve the activation of a team, as if it were a tool call.

Only keys with the scope `admin` decide on it.
"""

QUESTION: Final = "question"
"""The step of a build that asks its caller what the goal leaves open. Only keys with the scope `teams` answer it."""


@dataclass(frozen=True, slots=True)
class BuildOrigin:
    """Where a build runs: the task `path` of a run, held under `fence`, of an epoch, for a caller."""

    caller: Principal
    run_id: str
    fence: int
    path: str
    trace_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Approval:
    """A person's decision on an activation; `by` is the id of the key that decided, `note` what was said."""

    approved: bool
    by: str
    note: str = ""
