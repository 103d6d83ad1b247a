"""Results of checks."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from starling.core.errors import StarlingError
from starling.core.settings.schema import Settings

type State = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """The result of one check. A warning is worth knowing; a problem keeps something from working."""

    subject: str
    state: State
    message: str
    remedy: str = ""


type Check = Callable[[Settings], Awaitable[Sequence[Diagnostic]]]
"""One check. A StarlingError that it raises becomes its finding."""


def ok(subject: str, message: str) -> Diagnostic:
    """Return a finding without a problem."""
    return Diagnostic(subject, "ok", message)


def warning(subject: str, message: str, remedy: str) -> Diagnostic:
    """Return a finding that is worth knowing."""
    return Diagnostic(subject, "warning", message, remedy)


def problem(subject: str, error: StarlingError) -> Diagnostic:
    """Return the finding for an error."""
    return Diagnostic(subject, "problem", error.message, error.remedy)
