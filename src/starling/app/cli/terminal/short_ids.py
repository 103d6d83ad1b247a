"""Ids in tables: their ends, because ids made in the same weeks begin alike."""

from collections.abc import Sequence
from typing import Final

_SHORTEST: Final = 8


def short_ids(ids: Sequence[str]) -> Sequence[str]:
    """Return as much of the end of each id as tells them apart, 8 characters or more."""
    for length in range(_SHORTEST, max(map(len, ids), default=0)):
        shortened = [each.replace("-", "")[-length:] for each in ids]
        if len(set(shortened)) == len(set(ids)):
            return shortened
    return ids
