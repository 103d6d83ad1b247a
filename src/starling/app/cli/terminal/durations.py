"""Durations as options write them: `45m`, `12h`, `30d`, `8w`."""

import re
from datetime import timedelta
from typing import Final

from starling.core.errors import InvalidRequestError

_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_WRITTEN: Final = re.compile(r"([0-9]{1,7})([mhdw])")
_LONGEST: Final = timedelta(days=36_500)


def parse_duration(written: str) -> timedelta:
    """Return the duration that a text like `30d` stands for. Raises InvalidRequestError."""
    found = _WRITTEN.fullmatch(written.strip())
    duration = timedelta(**{_UNITS[found[2]]: int(found[1])}) if found else timedelta()
    if timedelta() < duration <= _LONGEST:
        return duration
    raise InvalidRequestError(
        f"{written!r} is not a duration.",
        "Write a whole number above 0 and a unit, m, h, d or w: 45m, 12h, 30d, 8w; at most 36500d.",
    )
