"""`starling run export`: runs as lines of JSON, for programs that judge them."""

import json
from datetime import UTC
from typing import Annotated

import typer

from starling.app.cli.platform.connection import connection_of
from starling.app.cli.platform.run_source import RecordFilter
from starling.app.cli.run.run_name import RUN_HELP, find_run
from starling.app.cli.terminal.durations import parse_duration
from starling.app.cli.terminal.output import results
from starling.core.clock import SystemClock
from starling.core.errors import NotFoundError
from starling.core.principal import DEFAULT_TENANT
from starling.core.run_status import RunStatus

app = typer.Typer(add_completion=False)


@app.command()
def export(  # noqa: PLR0913, PLR0917 - its options
    context: typer.Context,
    run: Annotated[str, typer.Argument(help=f"{RUN_HELP} Without it: all that the options select.")] = "",
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Print one line of JSON for each run; there is no other form.")
    ] = True,
    since: Annotated[str, typer.Option(help="Only runs accepted in the last 45m, 12h, 30d or 8w.")] = "",
    status: Annotated[RunStatus | None, typer.Option(help="Only runs with this status, such as failed.")] = None,
    thread: Annotated[str | None, typer.Option(help="Only runs of this thread.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="How many at most, latest first.")] = None,
    tenant: Annotated[str, typer.Option(help="The tenant of the runs.")] = DEFAULT_TENANT,
) -> None:
    """Print runs as lines of JSON, latest first: what was asked, planned, called, judged and answered."""
    del jsonl
    source = connection_of(context).source(tenant)
    begin = (SystemClock().now() - parse_duration(since)).astimezone(UTC).isoformat() if since else None
    wanted = RecordFilter(
        run=find_run(source, run) if run else None,
        status=status and status.value,
        thread=thread,
        since=begin,
        limit=limit,
    )
    found = False
    for record in source.records(wanted):
        found = True
        results().file.write(json.dumps(record, ensure_ascii=False) + "\n")
    if run and not found:
        raise NotFoundError("run", run)
    results().file.flush()
