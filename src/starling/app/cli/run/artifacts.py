"""`starling run artifacts`: results that were too long for a model."""

from collections.abc import Sequence
from typing import Annotated

import typer
from httpx import Response

from starling.app.cli.options import Json, Tenant
from starling.app.cli.platform.api import Document
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.run.run_name import Run, find_run
from starling.app.cli.terminal.output import print_json, print_line, print_table, results, write
from starling.core.errors import InvalidRequestError, NotFoundError
from starling.core.principal import DEFAULT_TENANT

app = typer.Typer(add_completion=False)

_SHOW = "`starling run artifacts RUN` shows the ids."


@app.command()
def artifacts(
    context: typer.Context,
    run: Run,
    artifact: Annotated[str, typer.Argument(help="The id of an artifact, or its beginning; prints its content.")] = "",
    tenant: Tenant = DEFAULT_TENANT,
    as_json: Json = False,
) -> None:
    """List results that were too long for a model, or print one of them."""
    api = connection_of(context).api(tenant)
    path = f"/v1/runs/{find_run(api, run)}/artifacts"
    found = api.get(path)["artifacts"]
    if artifact:
        whole = _find_artifact(found, artifact)
        _print(whole, api.send("GET", f"{path}/{whole}"), as_json=as_json)
    elif as_json:
        print_json(found)
    elif found:
        rows = [
            (*(one[name] for name in ("id", "call_id", "name", "media_type")), f"{one['bytes']:,}") for one in found
        ]
        print_table(("ARTIFACT", "CALL", "TOOL", "TYPE", "BYTES"), rows)
    else:
        print_line("The run has no artifacts: no result was too long, or `starling db prune` removed them.")


def _find_artifact(found: Sequence[Document], wanted: str) -> str:
    ids = {str(item["id"]) for item in found if item["id"].startswith(wanted)}
    if len(ids) > 1:
        raise InvalidRequestError(f"{wanted!r} is the beginning of {len(ids)} artifacts.", "Write more of the id.")
    if not ids:
        raise NotFoundError("artifact", wanted, _SHOW)
    return ids.pop()


def _print(artifact: str, answer: Response, *, as_json: bool) -> None:
    """Print content unchanged into a pipe or file; on a terminal without control characters."""
    text = answer.content.decode()
    if as_json:
        print_json(
            {"id": artifact, "media_type": answer.headers.get("content-type", "").partition(";")[0], "content": text}
        )
    elif results().is_terminal:
        write(results(), f"{text}\n")
    else:
        results().file.write(text)
        results().file.flush()
