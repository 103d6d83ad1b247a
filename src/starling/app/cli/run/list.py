"""`starling run list`: the latest runs."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from starling.app.cli.command_settings import settings_of
from starling.app.cli.signals import run_until_stopped
from starling.app.cli.terminal.output import print_json, print_line, print_table
from starling.app.container.admin import open_admin
from starling.core.principal import DEFAULT_TENANT
from starling.core.runs import RunStatus
from starling.core.settings import Settings
from starling.infra.postgres.runs.listing import RunFilter, RunSummary

app = typer.Typer(add_completion=False)

_INPUT_CHARS = 80


@app.command()
def list_runs(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many, latest first.")] = 20,
    status: Annotated[RunStatus | None, typer.Option(help="Only runs with this status, such as waiting.")] = None,
    thread: Annotated[str | None, typer.Option(help="Only runs of this thread.")] = None,
    tenant: Annotated[str, typer.Option(help="The tenant of the runs.")] = DEFAULT_TENANT,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the latest runs."""
    which = RunFilter(thread_id=thread, status=status)
    found = run_until_stopped(_latest(settings_of(context), tenant, limit, which))
    if as_json:
        print_json([asdict(run) for run in found])
    elif found:
        print_table(("RUN", "STATUS", "BEGAN", "SECONDS", "THREAD", "REQUEST"), [_cells(run) for run in found])
    elif status or thread:
        print_line("There are no such runs.")
    else:
        print_line("There are no runs yet. `starling ask` makes one.")


async def _latest(settings: Settings, tenant: str, limit: int, which: RunFilter) -> Sequence[RunSummary]:
    async with open_admin(settings) as admin:
        return await admin.listing.latest(tenant, limit=limit, which=which)


def _cells(run: RunSummary) -> tuple[str, ...]:
    began = run.created_at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    return run.id, run.status.value, began, f"{run.seconds:.1f}", run.thread_id, run.input[:_INPUT_CHARS]
