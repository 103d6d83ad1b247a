"""Results of checks."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from starling.core.errors import StarlingError
from starling.core.settings.schema import Settings

type State = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. A warning is worth knowing; a problem keeps something from working."""

    subject: str
    state: State
    message: str
    remedy: str = ""


type Check = Callable[[Settings], Awaitable[Sequence[Finding]]]
"""One check. A StarlingError that it raises becomes its finding."""


def ok(subject: str, message: str) -> Finding:
    """Return a finding without a problem."""
    return Finding(subject, "ok", message)


def problem(subject: str, error: StarlingError) -> Finding:
    """Return the finding for an error."""
    return Finding(subject, "problem", error.message, error.remedy)
