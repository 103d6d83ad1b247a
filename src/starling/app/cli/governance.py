"""`starling governance`: what requests of each mode and channel are allowed."""

from pathlib import Path
from typing import Annotated, Final

import typer

from starling.app.cli.options import Json
from starling.app.cli.platform import late_imports
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.terminal.formats import bound_text, bounds_text
from starling.app.cli.terminal.output import print_json, print_line, print_table
from starling.core.errors import ConfigurationError

_PATH: Final = "/v1/governance"
CHANGES = 10  # the exit code of a check that finds changes

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.callback()
def root() -> None:
    """Show and check the governance table. A start and `registry reload` put that of `starling.yaml` into force."""


@app.command()
def show(
    context: typer.Context,
    tenant: Annotated[str, typer.Option(help="Show the rows of this tenant.")] = "",
    as_json: Json = False,
) -> None:
    """Show what requests of each mode and channel are allowed: the rows of the active epoch."""
    found = connection_of(context).api().get(_PATH, tenant=tenant or None)
    if as_json:
        print_json(found)
        return
    whose = f" for the tenant {tenant}" if tenant else ""
    print_line(f"Epoch {found['epoch']} allows{whose}, within the limits of the platform and of a request:")
    print_table(("MODE/CHANNEL", "BOUNDS"), [(cell, bounds_text(row) or "–") for cell, row in found["cells"].items()])


@app.command()
def check(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(help="A settings file; default: that of --settings, or starling.yaml.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a settings file, and show what its section `governance` would change.

    Exits with 0 if nothing would change, with 10 if something would, and with 2 if something is wrong.
    """
    table = late_imports.governance(context, file)
    if table is None:
        raise ConfigurationError(
            "The settings have no section `governance`: the table in force stays.",
            "Write one; `governance: {}` is the default table.",
        )
    found = connection_of(context).api().post(f"{_PATH}/check", table)
    if as_json:
        print_json(found)
    else:
        changes = found["changes"]
        same = f"Nothing to change: epoch {found['epoch']} has the same table."
        print_line(f"A reload would change of epoch {found['epoch']}:" if changes else same)
        for place, one in changes.items():
            print_line(f"  ~ {place}: {bound_text(one['before'])} → {bound_text(one['after'])}")
        for text in found["warnings"]:
            print_line(f"  ! {text}", "yellow")
    if found["faults"]:
        raise ConfigurationError(f"The governance table is wrong: {'; '.join(found['faults'])}.", "Correct the names.")
    if found["changes"]:
        raise typer.Exit(CHANGES)
