"""The checks of the doctor, for a platform: imported once they are asked for."""

from collections.abc import Sequence

from starling.app.cli.lazy_commands import import_quietly
from starling.core.diagnostics import Diagnostic
from starling.core.settings.schema import Settings


async def checks_of(settings: Settings) -> Sequence[Diagnostic]:
    """Run the checks, whose modules a platform needs for nothing else."""
    return await import_quietly("starling.app.doctor.runner").run_checks(settings)
