"""What commands take for an id: the whole id, or the end of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from starling.app.cli.platform.run_source import Document
from starling.core.errors import InvalidRequestError, NotFoundError

LISTED: Final = 10  # of those whose ids end alike
_HEX: Final = frozenset("0123456789abcdef")
_SHORTEST: Final = 4


@dataclass(frozen=True, slots=True)
class IdNames:
    """Names of one kind of things by their ids. `noun` is that kind, `remedy` says where the ids are shown."""

    noun: str
    remedy: str
    described: Callable[[Document], str]

    def find(self, name: str, ending_in: Callable[[str], Sequence[Document]]) -> str:
        """Return the id that `name` is, or is the end of.

        `ending_in` returns up to `LISTED` + 1 things whose id, without hyphens, ends in these hex digits. Raises
        InvalidRequestError, NotFoundError.
        """
        try:
            return str(UUID(name))
        except ValueError:
            ending = self._ending(name)
        found = ending_in(ending)
        if not found:
            raise NotFoundError(self.noun, f"…{ending}", self.remedy)
        if len(found) > 1:
            raise self._ambiguous(ending, found)
        return str(found[0]["id"])

    def _ending(self, name: str) -> str:
        ending = name.removeprefix("…").replace("-", "").lower()
        if not ending or not _HEX.issuperset(ending):
            raise InvalidRequestError(f"{name!r} is not the id of a {self.noun}.", self.remedy)
        if len(ending) < _SHORTEST:
            raise InvalidRequestError(
                f"{name!r} is too short for the end of an id.", f"Write at least {_SHORTEST} characters. {self.remedy}"
            )
        return ending

    def _ambiguous(self, ending: str, found: Sequence[Document]) -> InvalidRequestError:
        listed = "\n".join(f"  {found_one['id']}  {self.described(found_one)}" for found_one in found[:LISTED])
        more = "\n  and more" if len(found) > LISTED else ""
        count = f"{LISTED} or more" if more else str(len(found))
        return InvalidRequestError(
            f"The ids of {count} {self.noun}s end in {ending}:\n{listed}{more}", "Write more of the id."
        )
