"""What a check comes to."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from starling.core.errors import StarlingError
from starling.core.settings import Settings

type State = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. A warning is worth knowing; a problem keeps something from working."""

    subject: str
    state: State
    message: str
    remedy: str = ""


type Check = Callable[[Settings], Awaitable[Sequence[Finding]]]
"""Looks at something. A StarlingError that it raises is its finding."""


def ok(subject: str, message: str) -> Finding:
    """Return the finding that something is as it should be."""
    return Finding(subject, "ok", message)


def problem(subject: str, error: StarlingError) -> Finding:
    """Return the finding that an error tells."""
    return Finding(subject, "problem", error.message, error.remedy)
