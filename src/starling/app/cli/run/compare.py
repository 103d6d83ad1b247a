"""`starling run compare`: two runs side by side, the first difference first."""

from typing import Annotated

import typer

from starling.app.cli.options import Json, Tenant
from starling.app.cli.platform.api import Document
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.run.run_name import RUN_HELP, find_run
from starling.app.cli.terminal.output import print_json, print_line, print_paragraph
from starling.core.principal import DEFAULT_TENANT

app = typer.Typer(add_completion=False)


@app.command()
def compare(
    context: typer.Context,
    first: Annotated[str, typer.Argument(metavar="A", help=RUN_HELP)],
    second: Annotated[str, typer.Argument(metavar="B", help=RUN_HELP)],
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
    for name in ("a", "b"):
        run = document[name]
        print_line(f"{name.upper()}  {run['run_id']}  {run['status']}, epoch {run['epoch']}")
    print_line(document["text"], "bold" if document["same_request"] else "bold yellow")
    for part in document["parts"] if every else document["differences"]:
        _print_part(part)
    for text in document["unread"]:
        print_paragraph(text, 0)


def _print_part(part: Document) -> None:
    named = part["kind"] if part["place"] == part["kind"] else f"{part['kind']} {part['place']}"
    if part["same"]:
        print_line(f"{named}: the same", "dim")
        return
    print_line(named, "bold")
    for name in ("a", "b"):
        print_paragraph(f"{name.upper()}: {_none_if_absent(part[name])}")


def _none_if_absent(text: str | None) -> str:
    return "(nothing)" if text is None else text
