"""How ids, moments and durations are written."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from starling.core.errors import InvalidRequestError

_SHORTEST: Final = 8
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION: Final = re.compile(r"([0-9]{1,7})([mhdw])")
_LONGEST: Final = timedelta(days=36_500)


def moment(written: str | datetime, *, utc: bool = False) -> str:
    """Return a moment to the second with its zone: `2026-11-20 06:12:01 -05`, `2026-11-20 11:12:01 UTC`."""
    found = datetime.fromisoformat(written) if isinstance(written, str) else written
    return f"{found.astimezone(UTC if utc else None):%Y-%m-%d %H:%M:%S %Z}"


def parse_duration(written: str) -> timedelta:
    """Return the duration that a text like `45m`, `12h`, `30d` or `8w` stands for. Raises InvalidRequestError."""
    found = _DURATION.fullmatch(written.strip())
    duration = timedelta(**{_UNITS[found[2]]: int(found[1])}) if found else timedelta()
    if timedelta() < duration <= _LONGEST:
        return duration
    raise InvalidRequestError(
        f"{written!r} is not a duration.",
        "Write a whole number above 0 and a unit, m, h, d or w: 45m, 12h, 30d, 8w; at most 36500d.",
    )


def short_ids(ids: Sequence[str]) -> Sequence[str]:
    """Return as much of the end of each id as tells them apart, 8 characters or more.

    Ids that were made in the same weeks begin alike.
    """
    for length in range(_SHORTEST, max(map(len, ids), default=0)):
        shortened = [each.replace("-", "")[-length:] for each in ids]
        if len(set(shortened)) == len(set(ids)):
            return shortened
    return ids
