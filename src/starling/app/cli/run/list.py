"""`starling run list`: the latest runs."""

from typing import Annotated

import typer

from starling.app.cli.options import Full, Json, Latest, Tenant, Utc
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.terminal.formats import moment, short_ids
from starling.app.cli.terminal.output import print_json, print_line, print_table, results
from starling.core.principal import DEFAULT_TENANT
from starling.core.run_status import RunStatus

app = typer.Typer(add_completion=False)

_INPUT_CHARS = 80
_PAGE = 200
_WIDTH_WITH_THREADS = 100


@app.command()
def list_runs(  # noqa: PLR0913, PLR0917 - its options
    context: typer.Context,
    limit: Latest = 20,
    status: Annotated[RunStatus | None, typer.Option(help="Only runs with this status, such as waiting.")] = None,
    thread: Annotated[str | None, typer.Option(help="Only runs of this thread.")] = None,
    prompt: Annotated[
        str | None, typer.Option(metavar="NAME|HASH", help="Only runs whose model calls used this wording of a prompt.")
    ] = None,
    tenant: Tenant = DEFAULT_TENANT,
    all_tenants: Annotated[bool, typer.Option("--all-tenants", help="The unfinished runs of all tenants.")] = False,
    full: Full = False,
    utc: Utc = False,
    as_json: Json = False,
) -> None:
    """List the latest runs. Other commands take the short ids shown here, and `last`."""
    query = {"status": status and status.value, "thread_id": thread, "prompt": prompt}
    query |= {"all_tenants": "true" if all_tenants else None}
    pages = connection_of(context).api(tenant).pages("/v1/runs", "runs", query, most=_PAGE, limit=limit)
    found = [{"id": run["run_id"], **{name: run[name] for name in run if name != "run_id"}} for run in pages]
    if as_json:
        print_json(found)
    elif found:
        columns = ("RUN", "TENANT", "STATUS", "BEGAN", "SECONDS", "THREAD", "REQUEST")
        ids = [run["id"] for run in found]
        rows = [
            (
                name,
                run["tenant"],
                run["status"],
                moment(run["created_at"], utc=utc),
                f"{run['seconds']:.1f}",
                run["thread_id"],
                run["input"] if full else run["input"][:_INPUT_CHARS],
            )
            for name, run in zip(ids if full else short_ids(ids), found, strict=True)
        ]
        has_room = not results().is_terminal or results().width >= _WIDTH_WITH_THREADS
        left_out = {"TENANT" if not all_tenants else "", "THREAD" if not (full or has_room) else ""}
        shown = [index for index, name in enumerate(columns) if name not in left_out]
        print_table([columns[index] for index in shown], [[row[index] for index in shown] for row in rows])
    elif status or thread or prompt or all_tenants:
        print_line("There are no such runs.")
    else:
        print_line(f"The tenant {tenant} has no runs yet. `starling ask` makes one; `--tenant` names another tenant.")
