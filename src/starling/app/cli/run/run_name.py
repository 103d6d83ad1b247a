"""The run that a command names: by its id, by the ending of its id, or as `last`."""

from typing import Final
from uuid import UUID

from starling.app.cli.run_source import Document, RunSource, Wanted
from starling.app.cli.terminal.moments import moment
from starling.core.errors import InvalidRequestError, NotFoundError

RUN_HELP: Final = "The run: its id, at least 4 characters of the end of its id, or last."

_HEX: Final = frozenset("0123456789abcdef")
_SHORTEST, _LISTED, _INPUT_CHARS = 4, 10, 50
_REMEDY: Final = "`starling run list` shows the ids; `last` means the latest run."


def find_run(source: RunSource, name: str) -> str:
    """Return the id of the run that `name` means. Raises InvalidRequestError, NotFoundError."""
    if name == "last":
        return _last(source)
    try:
        return str(UUID(name))
    except ValueError:
        pass
    ending = name.removeprefix("…").replace("-", "").lower()
    if not ending or not _HEX.issuperset(ending):
        raise InvalidRequestError(f"{name!r} is not the id of a run.", _REMEDY)
    if len(ending) < _SHORTEST:
        raise InvalidRequestError(
            f"{name!r} is too short for the end of an id.", f"Write at least {_SHORTEST} characters. {_REMEDY}"
        )
    return _ending_in(source, ending)


def _last(source: RunSource) -> str:
    found = source.runs(Wanted(1))
    if not found:
        raise NotFoundError("run", "last", "There are no runs yet: `starling ask` makes one.")
    return str(found[0]["id"])


def _ending_in(source: RunSource, ending: str) -> str:
    found = source.runs(Wanted(_LISTED + 1, ending=ending))
    if not found:
        raise NotFoundError("run", f"…{ending}", _REMEDY)
    if len(found) > 1:
        listed = "\n".join(f"  {_described(run)}" for run in found[:_LISTED])
        more = "\n  and more" if len(found) > _LISTED else ""
        count = f"{_LISTED} or more" if more else str(len(found))
        raise InvalidRequestError(f"The ids of {count} runs end in {ending}:\n{listed}{more}", "Write more of the id.")
    return str(found[0]["id"])


def _described(run: Document) -> str:
    request = " ".join(str(run["input"]).split())
    return f"{run['id']}  {run['status']}, {moment(str(run['created_at']))}: {request[:_INPUT_CHARS]}"
