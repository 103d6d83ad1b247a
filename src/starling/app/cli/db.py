"""`starling db`: migrate the schema, prune old rows."""

from typing import Annotated

import typer

from starling.app.cli.options import Json, OneTenant
from starling.app.cli.platform.command_settings import settings_of
from starling.app.cli.signals import run_until_stopped, run_with
from starling.app.cli.terminal.formats import moment, parse_duration
from starling.app.cli.terminal.output import print_json, print_line, print_result, print_table, progress
from starling.app.container.database import find_database
from starling.app.container.storage import open_storage
from starling.app.runs.retention import STATEMENT_SECONDS
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.retention import PruneSelection
from starling.infra.postgres.schema import upgrade as upgrade_schema

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.callback()
def root() -> None:
    """Migrate and prune the database."""


@app.command()
def upgrade(context: typer.Context, as_json: Json = False) -> None:
    """Migrate the database to the schema of this version. `starling up` does so by itself."""
    database = find_database(settings_of(context))
    with progress("Migrating …"):
        revision = run_until_stopped(upgrade_schema(database.direct_url))
    print_result({"schema": revision}, f"The database has schema {revision}.", as_json=as_json)


@app.command()
def prune(  # noqa: PLR0913, PLR0917 - its options
    context: typer.Context,
    older_than: Annotated[str, typer.Option(help="Prune what ended, or was last used, longer ago: 45m, 12h, 30d, 8w.")],
    tenant: OneTenant = None,
    no_runs: Annotated[bool, typer.Option("--no-runs", help="Keep details of runs: prune what else is named.")] = False,
    audit: Annotated[bool, typer.Option("--audit", help="Prune the audit trail too.")] = False,
    skills: Annotated[bool, typer.Option("--skills", help="Prune skills too that were not used since.")] = False,
    threads: Annotated[
        bool, typer.Option("--threads", help="Delete conversations too that were not used since, with their runs.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be removed.")] = False,
    as_json: Json = False,
) -> None:
    """Remove details of ended runs, also while others run. Results, last events and conversations are kept."""
    if no_runs and not (audit or skills or threads):
        raise typer.BadParameter("With --no-runs, add --audit, --skills or --threads.")
    which = PruneSelection(parse_duration(older_than), tenant, audit, skills, threads, not no_runs)
    with progress("Looking …" if dry_run else "Removing …"):
        settings = settings_of(context)
        forgotten = run_with(
            open_storage(settings, find_database(settings), statement_seconds=STATEMENT_SECONDS),
            lambda storage: storage.retention.prune(which, Actor.local("cli"), dry_run=dry_run),
        )
    before = moment(forgotten.before)
    why_nothing = "" if forgotten.total else f"{'None of it is from' if no_runs else 'No run ended'} before {before}."
    if forgotten.ended and why_nothing:
        why_nothing = f"What the {forgotten.ended} runs left that ended before {before} was removed earlier."
    if as_json:
        print_json(
            {
                "dry_run": dry_run,
                "before": forgotten.before.isoformat(),
                "runs": forgotten.runs,
                "removed": dict(forgotten.rows),
                "calls_kept": forgotten.unsettled,
                "why_nothing": why_nothing,
            }
        )
        return
    if why_nothing:
        print_line(f"Nothing to remove. {why_nothing}")
    else:
        said = f"{'Would remove' if dry_run else 'Removed'} what was left before {before}"
        print_line(f"{said}:" if no_runs else f"{said}, by {forgotten.runs} runs:")
        print_table(("TABLE", "ROWS"), [(table, str(count)) for table, count in forgotten.rows.items()])
    if forgotten.unsettled:
        print_line(f"{forgotten.unsettled} calls are kept: it is not known yet whether they were made.")
