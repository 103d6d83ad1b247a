"""`starling db`: migrate the schema, prune old rows."""

from typing import Annotated

import typer

from starling.app.cli.platform.command_settings import settings_of
from starling.app.cli.signals import run_until_stopped
from starling.app.cli.terminal.durations import parse_duration
from starling.app.cli.terminal.moments import moment
from starling.app.cli.terminal.output import print_json, print_line, print_table, progress
from starling.app.container.database import find_database
from starling.app.container.storage import open_storage
from starling.app.runs.retention import STATEMENT_SECONDS
from starling.core.settings.schema import Settings
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.retention import RetentionReport, Selection
from starling.infra.postgres.schema import upgrade as upgrade_schema

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.callback()
def root() -> None:
    """Migrate and prune the database."""


@app.command()
def upgrade(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Migrate the database to the schema of this version. `starling up` does so by itself."""
    database = find_database(settings_of(context))
    with progress("Migrating …"):
        revision = run_until_stopped(upgrade_schema(database.direct_url))
    if as_json:
        print_json({"schema": revision})
    else:
        print_line(f"The database has schema {revision}.")


@app.command()
def prune(
    context: typer.Context,
    older_than: Annotated[str, typer.Option(help="Prune runs that ended longer ago than this: 45m, 12h, 30d, 8w.")],
    tenant: Annotated[str | None, typer.Option(help="Prune one tenant only; default: all.")] = None,
    audit: Annotated[bool, typer.Option("--audit", help="Prune the audit trail too.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be removed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Remove details of ended runs, also while others run. Results, last events and conversations are kept."""
    which = Selection(parse_duration(older_than), tenant, audit)
    with progress("Looking …" if dry_run else "Removing …"):
        forgotten = run_until_stopped(_prune(settings_of(context), which, dry_run=dry_run))
    if as_json:
        print_json(_document(forgotten, dry_run=dry_run))
        return
    if forgotten.total:
        said = "Would remove" if dry_run else "Removed"
        print_line(f"{said} what was left before {_moment(forgotten)}, by {forgotten.runs} runs:")
        print_table(("TABLE", "ROWS"), [(table, str(count)) for table, count in forgotten.rows.items()])
    else:
        print_line(f"Nothing to remove. {_why_nothing(forgotten)}")
    if forgotten.unsettled:
        print_line(f"{forgotten.unsettled} calls are kept: it is not known yet whether they were made.")


async def _prune(settings: Settings, which: Selection, *, dry_run: bool) -> RetentionReport:
    async with open_storage(settings, find_database(settings), statement_seconds=STATEMENT_SECONDS) as storage:
        return await storage.retention.prune(which, Actor.local("cli"), dry_run=dry_run)


def _document(forgotten: RetentionReport, *, dry_run: bool) -> dict[str, object]:
    return {
        "dry_run": dry_run,
        "before": forgotten.before.isoformat(),
        "runs": forgotten.runs,
        "removed": dict(forgotten.rows),
        "calls_kept": forgotten.unsettled,
        "why_nothing": "" if forgotten.total else _why_nothing(forgotten),
    }


def _why_nothing(forgotten: RetentionReport) -> str:
    if forgotten.ended:
        return f"What the {forgotten.ended} runs left that ended before {_moment(forgotten)} was removed earlier."
    return f"No run ended before {_moment(forgotten)}."


def _moment(forgotten: RetentionReport) -> str:
    return moment(forgotten.before)
