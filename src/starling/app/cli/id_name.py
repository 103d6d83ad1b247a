"""What commands take for an id: the whole id, or the end of it; for runs also `last`."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Annotated, Final
from uuid import UUID

import typer

from starling.app.cli.completion import RUNS
from starling.app.cli.terminal.formats import moment
from starling.client.api import Api, Document
from starling.core.errors import InvalidRequestError, NotFoundError

LISTED: Final = 10  # of those whose ids end alike
_SHORTEST: Final = 4
_HEX: Final = frozenset("0123456789abcdef")
RUN_HELP: Final = "The run: its id, at least 4 characters of the end of its id, or last."
RunArgument: Final = partial(typer.Argument, autocompletion=RUNS)
Run = Annotated[str, RunArgument(help=RUN_HELP)]
_INPUT_CHARS: Final = 50
_REMEDY: Final = "`starling run list` shows the ids; `last` means the latest run."


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
        listed = "\n".join(f"  {one[field]}  {described(one)}" for one in found[:LISTED])
        more = "\n  and more" if len(found) > LISTED else ""
        count = f"{LISTED} or more" if more else str(len(found))
        raise InvalidRequestError(
            f"The ids of {count} {noun}s end in {ending}:\n{listed}{more}", "Write more of the id."
        )
    return str(found[0][field])


def ending_in(things: Iterable[Document], ending: str) -> list[Document]:
    """Return those of the things whose `id`, without hyphens, ends in these hex digits."""
    return [one for one in things if str(one["id"]).replace("-", "").endswith(ending)]


def find_run(api: Api, name: str) -> str:
    """Return the id of the run that `name` means. Raises InvalidRequestError, NotFoundError."""
    if name == "last":
        found = api.get("/v1/runs", limit=1)["runs"]
        if not found:
            raise NotFoundError("run", "last", "There are no runs yet: `starling ask` makes one.")
        return str(found[0]["run_id"])

    def latest(ending: str) -> list[Document]:
        return api.get("/v1/runs", ending=ending, limit=LISTED + 1)["runs"]

    def described(run: Document) -> str:
        request = " ".join(str(run["input"]).split())
        return f"{run['status']}, {moment(str(run['created_at']))}: {request[:_INPUT_CHARS]}"

    return find_id("run", name, latest, described=described, remedy=_REMEDY, field="run_id")
