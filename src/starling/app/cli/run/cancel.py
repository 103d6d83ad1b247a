"""`starling run cancel`: cancel a run."""

from typing import Annotated

import typer

from starling.app.cli.command_settings import settings_of
from starling.app.cli.run.run_key import parse_run_key
from starling.app.cli.signals import run_until_stopped
from starling.app.cli.terminal.output import print_json, print_line
from starling.app.container.services import open_services
from starling.app.runtime.database import find_database
from starling.core.principal import DEFAULT_TENANT
from starling.core.runs import RunStatus
from starling.core.settings import Settings
from starling.infra.postgres.runs.acceptance import RunKey

app = typer.Typer(add_completion=False)


@app.command()
def cancel(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help="The id of the run.")],
    tenant: Annotated[str, typer.Option(help="The tenant of the run.")] = DEFAULT_TENANT,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Cancel a run. The worker of a running run ends it within a second."""
    key = parse_run_key(tenant, run)
    status = run_until_stopped(_cancel(settings_of(context), key))
    if as_json:
        print_json({"run_id": key.id, "status": status.value})
    elif status.terminal:
        print_line(f"Run {key.id} has ended: {status.value}.")
    else:
        print_line(f"Run {key.id} is {status.value}; its worker will end it.")


async def _cancel(settings: Settings, key: RunKey) -> RunStatus:
    async with open_services(settings, find_database(settings)) as services:
        return await services.cancellation.cancel(key)
