"""`starling db`: the database's schema."""

from typing import Annotated

import typer

from starling.app.cli.configuring import settings_of
from starling.app.cli.output import progress, say, say_json
from starling.app.cli.stopping import run_until_stopped
from starling.app.database import find_database
from starling.infra.postgres.schema import upgrade as upgrade_schema

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.callback()
def root() -> None:
    """Look after the database."""


@app.command()
def upgrade(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Bring the database to the schema that this Starling needs. `starling up` does it by itself."""
    database = find_database(settings_of(context))
    with progress("Migrating …"):
        revision = run_until_stopped(upgrade_schema(database.direct_url))
    if as_json:
        say_json({"schema": revision})
    else:
        say(f"The database has schema {revision}.")
