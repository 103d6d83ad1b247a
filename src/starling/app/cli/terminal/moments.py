"""Moments as tables and messages show them: in the local time zone, or in UTC."""

from datetime import UTC, datetime


def moment(written: str | datetime, *, utc: bool = False) -> str:
    """Return a moment to the second with its zone: `2026-11-20 06:12:01 -05`, `2026-11-20 11:12:01 UTC`."""
    found = datetime.fromisoformat(written) if isinstance(written, str) else written
    return f"{found.astimezone(UTC if utc else None):%Y-%m-%d %H:%M:%S %Z}"
