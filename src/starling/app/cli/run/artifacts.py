"""`starling run artifacts`: results that were too long for a model."""

from collections.abc import Sequence
from typing import Annotated

import typer

from starling.app.cli.platform.connection import connection_of
from starling.app.cli.platform.run_source import Document
from starling.app.cli.run.run_name import RUN_HELP, find_run
from starling.app.cli.terminal.output import print_json, print_line, print_table, results, write
from starling.core.errors import InvalidRequestError, NotFoundError
from starling.core.principal import DEFAULT_TENANT

app = typer.Typer(add_completion=False)

_SHOW = "`starling run artifacts RUN` shows the ids."


@app.command()
def artifacts(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help=RUN_HELP)],
    artifact: Annotated[str, typer.Argument(help="The id of an artifact, or its beginning; prints its content.")] = "",
    tenant: Annotated[str, typer.Option(help="The tenant of the run.")] = DEFAULT_TENANT,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List results that were too long for a model, or print one of them."""
    source = connection_of(context).source(tenant)
    run_id = find_run(source, run)
    found = source.artifacts(run_id)
    if artifact:
        whole = _find_artifact(found, artifact)
        _print(whole, *source.artifact(run_id, whole), as_json=as_json)
    elif as_json:
        print_json(found)
    elif found:
        print_table(("ARTIFACT", "CALL", "TOOL", "TYPE", "BYTES"), [_cells(item) for item in found])
    else:
        print_line("The run has no artifacts: no result was too long, or `starling db prune` removed them.")


def _find_artifact(found: Sequence[Document], wanted: str) -> str:
    ids = {str(item["id"]) for item in found if item["id"].startswith(wanted)}
    if len(ids) > 1:
        raise InvalidRequestError(f"{wanted!r} is the beginning of {len(ids)} artifacts.", "Write more of the id.")
    if not ids:
        raise NotFoundError("artifact", wanted, _SHOW)
    return ids.pop()


def _print(artifact: str, media_type: str, text: str, *, as_json: bool) -> None:
    """Print content unchanged into a pipe or file; on a terminal without control characters."""
    if as_json:
        print_json({"id": artifact, "media_type": media_type, "content": text})
    elif results().is_terminal:
        write(results(), f"{text}\n")
    else:
        results().file.write(text)
        results().file.flush()


def _cells(item: Document) -> tuple[str, ...]:
    return item["id"], item["call_id"], item["name"], item["media_type"], f"{item['bytes']:,}"
