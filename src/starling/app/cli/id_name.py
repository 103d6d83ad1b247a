"""What commands take for an id: the whole id, or the end of it."""

from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from starling.app.cli.platform.api import Document
from starling.core.errors import InvalidRequestError, NotFoundError

LISTED: Final = 10  # of those whose ids end alike
SHORTEST: Final = 4
HEX: Final = frozenset("0123456789abcdef")


def find_id(
    noun: str,
    name: str,
    ending_in: Callable[[str], Sequence[Document]],
    *,
    described: Callable[[Document], str],
    remedy: str,
    field: str = "id",
) -> str:
    """Return the id of a `noun` that `name` is, or is the end of; `remedy` says where the ids are shown.

    `ending_in` returns up to `LISTED` + 1 things whose `field`, without hyphens, ends in these hex digits. Raises
    InvalidRequestError, NotFoundError.
    """
    try:
        return str(UUID(name))
    except ValueError:
        ending = name.removeprefix("…").replace("-", "").lower()
    if not ending or not HEX.issuperset(ending):
        raise InvalidRequestError(f"{name!r} is not the id of a {noun}.", remedy)
    if len(ending) < SHORTEST:
        raise InvalidRequestError(
            f"{name!r} is too short for the end of an id.", f"Write at least {SHORTEST} characters. {remedy}"
        )
    found = ending_in(ending)
    if not found:
        raise NotFoundError(noun, f"…{ending}", remedy)
    if len(found) > 1:
        listed = "\n".join(f"  {one[field]}  {described(one)}" for one in found[:LISTED])
        more = "\n  and more" if len(found) > LISTED else ""
        count = f"{LISTED} or more" if more else str(len(found))
        raise InvalidRequestError(
            f"The ids of {count} {noun}s end in {ending}:\n{listed}{more}", "Write more of the id."
        )
    return str(found[0][field])
