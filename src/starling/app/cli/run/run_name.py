"""The run that a command names: by its id, by the ending of its id, or as `last`."""

from typing import Final

from starling.app.cli.id_name import LISTED, IdNames
from starling.app.cli.platform.run_source import Document, RunSource, Wanted
from starling.app.cli.terminal.moments import moment
from starling.core.errors import NotFoundError

RUN_HELP: Final = "The run: its id, at least 4 characters of the end of its id, or last."

_INPUT_CHARS: Final = 50
_REMEDY: Final = "`starling run list` shows the ids; `last` means the latest run."


def find_run(source: RunSource, name: str) -> str:
    """Return the id of the run that `name` means. Raises InvalidRequestError, NotFoundError."""
    if name == "last":
        return _last(source)
    return _RUNS.find(name, lambda ending: source.runs(Wanted(LISTED + 1, ending=ending)))


def _last(source: RunSource) -> str:
    found = source.runs(Wanted(1))
    if not found:
        raise NotFoundError("run", "last", "There are no runs yet: `starling ask` makes one.")
    return str(found[0]["id"])


def _described(run: Document) -> str:
    request = " ".join(str(run["input"]).split())
    return f"{run['status']}, {moment(str(run['created_at']))}: {request[:_INPUT_CHARS]}"


_RUNS: Final = IdNames("run", _REMEDY, _described)
