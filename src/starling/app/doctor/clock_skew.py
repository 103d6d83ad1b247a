"""Skew between the clocks of this machine and the database: leases use one, logs and traces the other."""

from collections.abc import Sequence
from datetime import datetime

from starling.app.container.database import find_database
from starling.app.doctor.finding import Diagnostic, ok
from starling.core.clock import SystemClock
from starling.core.errors import DatabaseUnavailableError
from starling.core.settings.schema import Settings
from starling.infra.postgres.engine import connected

_MOST_SECONDS = 2.0


async def check(settings: Settings) -> Sequence[Diagnostic]:
    """Return how far the two clocks are apart; nothing without a database."""
    clock = SystemClock()
    try:
        async with connected(find_database(settings).direct_url) as connection:
            before = clock.now()
            row = await (await connection.execute("SELECT clock_timestamp()")).fetchone()
            after = clock.now()
    except DatabaseUnavailableError:  # another check reports that
        return []
    return [] if row is None else [finding(before + (after - before) / 2, row[0])]


def finding(here: datetime, there: datetime) -> Diagnostic:
    """Return the finding for the two clocks, read at the same moment."""
    seconds = abs((here - there).total_seconds())
    said = f"This clock and the database's are {seconds:.3f} s apart."
    if seconds < _MOST_SECONDS:
        return ok("clock", said)
    return Diagnostic("clock", "problem", said, "Synchronise both machines with NTP.")
