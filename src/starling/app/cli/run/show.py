"""`starling run show`: one run as it is stored."""

from typing import Annotated

import typer

from starling.app.cli.options import Json, Tenant
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.run.run_name import Run, find_run
from starling.app.cli.terminal.build_text import print_lines
from starling.app.cli.terminal.interrupt_text import run_reference
from starling.app.cli.terminal.output import print_json, results
from starling.app.cli.terminal.run_tree import TreeForm, stored_lines
from starling.core.clock import SystemClock
from starling.core.principal import DEFAULT_TENANT
from starling.core.run_document.loading import load

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
    document = load(found)
    width = results().width if results().is_terminal else _PIPE_WIDTH
    form = TreeForm(width=width, now=SystemClock().now(), details=as_tree)
    print_lines(stored_lines(document, form, run_reference(document.run_id, tenant)))
