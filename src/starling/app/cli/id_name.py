"""What commands take for an id: the whole id, or the end of it; for runs also `last`."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Annotated, Final
from uuid import UUID

import typer

from starling.app.cli.completion import RUNS
from starling.client.api import Api
from starling.core.errors import InvalidRequestError, NotFoundError

_SHORTEST: Final = 4
_HEX: Final = frozenset("0123456789abcdef")
RUN_HELP: Final = "The run: its id, at least 4 characters of the end of its id, or last."
RunArgument: Final = partial(typer.Argument, autocompletion=RUNS)
Run = Annotated[str, RunArgument(help=RUN_HELP)]
_REMEDY: Final = "`starling run list` shows the ids; `last` means the latest run."


def find_id(noun: str, name: str, ending_in: Callable[[str], Sequence[str]], *, remedy: str) -> str:
    """Return the id of a `noun` that `name` is, or is the end of; `remedy` says where the ids are shown.

    `ending_in` returns the ids, or the first two, that end in these hex digits. Raises InvalidRequestError,
    NotFoundError.
    """
    try:
        return str(UUID(name))
    except ValueError:
        ending = name.removeprefix("…").replace("-", "").lower()
    if not ending or not _HEX.issuperset(ending):
        raise InvalidRequestError(f"{name!r} is not the id of a {noun}.", remedy)
    if len(ending) < _SHORTEST:
        raise InvalidRequestError(
            f"{name!r} is too short for the end of an id.", f"Write at least {_SHORTEST} characters. {remedy}"
        )
    found = ending_in(ending)
    if not found:
        raise NotFoundError(noun, f"…{ending}", remedy)
    if len(found) > 1:
        raise InvalidRequestError(f"The ids of several {noun}s end in {ending}.", f"Write more of the id. {remedy}")
    return found[0]


def ending_in(ids: Iterable[str], ending: str) -> list[str]:
    """Return those of the ids that, without hyphens, end in these hex digits."""
    return [one for one in ids if one.replace("-", "").endswith(ending)]


def find_run(api: Api, name: str) -> str:
    """Return the id of the run that `name` means. Raises InvalidRequestError, NotFoundError."""
    if name == "last":
        found = api.get("/v1/runs", limit=1)["runs"]
        if not found:
            raise NotFoundError("run", "last", "There are no runs yet: `starling ask` makes one.")
        return str(found[0]["run_id"])

    def latest(ending: str) -> list[str]:
        return [run["run_id"] for run in api.get("/v1/runs", ending=ending, limit=2)["runs"]]

    return find_id("run", name, latest, remedy=_REMEDY)
