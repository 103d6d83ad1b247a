"""`starling run show`, `compare` and `artifacts`."""

from typing import Annotated

import typer

from starling.app.cli.id_name import RUN_HELP, Run, RunArgument, find_run
from starling.app.cli.options import Json, Tenant
from starling.app.cli.platform import late_imports
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.terminal.build_text import print_lines
from starling.app.cli.terminal.comparison_text import print_comparison
from starling.app.cli.terminal.interrupt_text import run_reference
from starling.app.cli.terminal.output import print_json, print_list, results, write
from starling.app.cli.terminal.run_tree import TreeForm, stored_lines
from starling.client.api import Document
from starling.core.artifacts import text_in
from starling.core.clock import SystemClock
from starling.core.errors import InvalidRequestError, NotFoundError
from starling.core.principal import DEFAULT_TENANT

app = typer.Typer(add_completion=False)
_PIPE_WIDTH = 200  # of lines in a pipe or file


@app.command()
def show(
    context: typer.Context,
    run: Run,
    tenant: Tenant = DEFAULT_TENANT,
    as_tree: Annotated[bool, typer.Option("--tree", help="Show decisions, model calls, tokens and ids, too.")] = False,
    as_json: Json = False,
) -> None:
    """Show a run: its tasks with their calls and verdicts as a tree, what it waits for, and its answer."""
    api = connection_of(context).api(tenant)
    found = api.get(f"/v1/runs/{find_run(api, run)}", include="tasks,calls,prompts,feedback")
    if as_json:
        print_json(found)
        return
    document = late_imports.run_document(found)
    width = results().width if results().is_terminal else _PIPE_WIDTH
    form = TreeForm(width=width, now=SystemClock().now(), details=as_tree)
    print_lines(stored_lines(document, form, run_reference(document.run_id, tenant)))


@app.command()
def compare(
    context: typer.Context,
    first: Annotated[str, RunArgument(metavar="A", help=RUN_HELP)],
    second: Annotated[str, RunArgument(metavar="B", help=RUN_HELP)],
    tenant: Tenant = DEFAULT_TENANT,
    every: Annotated[bool, typer.Option("--all", help="Show what is the same, too.")] = False,
    as_json: Json = False,
) -> None:
    """Compare two runs of the same request: plans, calls, verdicts, prompts and epochs, the first difference first."""
    api = connection_of(context).api(tenant)
    document = api.get(f"/v1/runs/{find_run(api, first)}/comparison/{find_run(api, second)}")
    if as_json:
        print_json(document)
        return
    print_comparison(document, every=every)


@app.command()
def artifacts(
    context: typer.Context,
    run: Run,
    artifact: Annotated[str, typer.Argument(help="The id of an artifact, or its beginning; prints its content.")] = "",
    tenant: Tenant = DEFAULT_TENANT,
    as_json: Json = False,
) -> None:
    """List results that were too long for a model or are binary, or print one, unchanged into a pipe or file."""
    api = connection_of(context).api(tenant)
    path = f"/v1/runs/{find_run(api, run)}/artifacts"
    found = api.get(path)["artifacts"]
    if artifact:
        ids = {str(item["id"]) for item in found if item["id"].startswith(artifact)}
        if len(ids) > 1:
            many = f"{artifact!r} is the beginning of {len(ids)} artifacts."
            raise InvalidRequestError(many, "Write more of the id.")
        if not ids:
            raise NotFoundError("artifact", artifact, "`starling run artifacts RUN` shows the ids.")
        whole = ids.pop()
        answer = api.send("GET", f"{path}/{whole}")
        if not as_json and not results().is_terminal:
            typer.echo(answer.content, nl=False)
            return
        media_type = answer.headers.get("content-type", "").partition(";")[0]
        if (text := text_in(answer.content)) is None:
            remedy = f"Write it into a file: `starling run artifacts {run} {artifact} > FILE`."
            raise InvalidRequestError(f"The artifact is binary ({media_type}), not text.", remedy)
        if as_json:
            print_json({"id": whole, "media_type": media_type, "content": text})
        else:  # without control characters
            write(results(), f"{text}\n")
        return

    def cells(one: Document) -> tuple[str, ...]:
        return one["id"], one["call_id"], one["name"], one["media_type"], f"{one['bytes']:,}"

    empty = "The run has no artifacts: no result was too long or binary, or `starling db prune` removed them."
    print_list(found, ("ARTIFACT", "CALL", "TOOL", "TYPE", "BYTES"), cells, empty=empty, as_json=as_json)
