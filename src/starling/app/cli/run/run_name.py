"""The run that a command names: by its id, by the ending of its id, or as `last`."""

from typing import Annotated, Final

import typer

from starling.app.cli.id_name import LISTED, find_id
from starling.app.cli.platform.api import Api, Document
from starling.app.cli.terminal.formats import moment
from starling.core.errors import NotFoundError

RUN_HELP: Final = "The run: its id, at least 4 characters of the end of its id, or last."
Run = Annotated[str, typer.Argument(help=RUN_HELP)]

_INPUT_CHARS: Final = 50
_REMEDY: Final = "`starling run list` shows the ids; `last` means the latest run."


def find_run(api: Api, name: str) -> str:
    """Return the id of the run that `name` means. Raises InvalidRequestError, NotFoundError."""
    if name == "last":
        found = api.get("/v1/runs", limit=1)["runs"]
        if not found:
            raise NotFoundError("run", "last", "There are no runs yet: `starling ask` makes one.")
        return str(found[0]["run_id"])

    def ending_in(ending: str) -> list[Document]:
        return api.get("/v1/runs", ending=ending, limit=LISTED + 1)["runs"]

    return find_id("run", name, ending_in, described=_described, remedy=_REMEDY, field="run_id")


def _described(run: Document) -> str:
    request = " ".join(str(run["input"]).split())
    return f"{run['status']}, {moment(str(run['created_at']))}: {request[:_INPUT_CHARS]}"
