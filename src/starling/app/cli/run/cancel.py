"""`starling run cancel`: a run ends before its time."""

from typing import Annotated
from uuid import UUID

import typer

from starling.app.cli.command_settings import settings_of
from starling.app.cli.signals import run_until_stopped
from starling.app.cli.terminal.output import print_json, print_line
from starling.app.runs.cancellation import open_cancellation
from starling.core.errors import InvalidRequestError
from starling.core.principal import DEFAULT_TENANT
from starling.core.runs import RunStatus
from starling.core.settings import Settings
from starling.infra.postgres.runs.acceptance import RunKey

app = typer.Typer(add_completion=False)


@app.command()
def cancel(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help="The run's id.")],
    tenant: Annotated[str, typer.Option(help="Whose run.")] = DEFAULT_TENANT,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Cancel a run. A running one is ended by its worker, within a second."""
    key = _key(tenant, run)
    status = run_until_stopped(_cancel(settings_of(context), key))
    if as_json:
        print_json({"run_id": key.id, "status": status.value})
    elif status.terminal:
        print_line(f"Run {key.id} is over: {status.value}.")
    else:
        print_line(f"Run {key.id} is {status.value}; its worker ends it.")


async def _cancel(settings: Settings, key: RunKey) -> RunStatus:
    async with open_cancellation(settings) as cancellation:
        return await cancellation.cancel(key)


def _key(tenant: str, run: str) -> RunKey:
    try:
        return RunKey(tenant, str(UUID(run)))
    except ValueError:
        raise InvalidRequestError(f"{run!r} is no id of a run.", "`starling run list` shows the ids.") from None
