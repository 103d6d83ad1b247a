"""Which agent runtimes are installed."""

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from starling.app.doctor.finding import Diagnostic, ok
from starling.core.settings.schema import Settings

_SUBJECT: Final = "runtimes"
_MISSING: Final = (
    "native; CrewAI is not installed, so agents that ask for it are executed by the native runtime, with a warning. "
    "`starling-swarm[crewai]` adds it, with 60 packages of 730 MB."
)


async def check(_: Settings) -> Sequence[Diagnostic]:
    """Return which runtimes there are; CrewAI is optional."""
    try:
        return [finding(version("crewai"))]
    except PackageNotFoundError:
        return [finding(None)]


def finding(crewai: str | None) -> Diagnostic:
    """Return the finding for a version of CrewAI, None where it isn't installed."""
    return ok(_SUBJECT, _MISSING if crewai is None else f"native, and CrewAI {crewai}.")
