"""`starling run export`: runs as lines of JSON, for programs that judge them."""

from datetime import UTC
from typing import Annotated

import typer

from starling.app.cli.id_name import RUN_HELP, RunArgument, find_run
from starling.app.cli.options import Tenant
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.terminal.formats import parse_duration
from starling.app.cli.terminal.output import json_text, results
from starling.core.clock import SystemClock
from starling.core.errors import NotFoundError
from starling.core.principal import DEFAULT_TENANT
from starling.core.run_status import RunStatus

app = typer.Typer(add_completion=False)

_PAGE = 10


@app.command()
def export(  # noqa: PLR0913, PLR0917 - its options
    context: typer.Context,
    run: Annotated[str, RunArgument(help=f"{RUN_HELP} Without it: all that the options select.")] = "",
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Print one line of JSON for each run; there is no other form.")
    ] = True,
    since: Annotated[str, typer.Option(help="Only runs accepted in the last 45m, 12h, 30d or 8w.")] = "",
    status: Annotated[RunStatus | None, typer.Option(help="Only runs with this status, such as failed.")] = None,
    thread: Annotated[str | None, typer.Option(help="Only runs of this thread.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="How many at most, latest first.")] = None,
    tenant: Tenant = DEFAULT_TENANT,
) -> None:
    """Print runs as lines of JSON, latest first: what was asked, planned, called, judged and answered."""
    del jsonl
    api = connection_of(context).api(tenant)
    begin = (SystemClock().now() - parse_duration(since)).astimezone(UTC).isoformat() if since else None
    query = {
        "run_id": find_run(api, run) if run else None,
        "status": status and status.value,
        "thread_id": thread,
        "since": begin,
    }
    found = False
    for record in api.pages("/v1/records", "records", query, most=_PAGE, limit=limit):
        found = True
        results().file.write(f"{json_text(record)}\n")
    if run and not found:
        raise NotFoundError("run", run)
    results().file.flush()
