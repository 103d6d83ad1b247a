"""`starling run tail`: the events of a run, up to its end."""

import asyncio
from collections.abc import Callable
from typing import Annotated

import typer

from starling.app.cli.command_settings import settings_of
from starling.app.cli.run.run_key import parse_run_key
from starling.app.cli.signals import run_until_stopped
from starling.app.cli.terminal.output import print_json, results
from starling.app.cli.terminal.run_display import IDLE_SECONDS, RunDisplay
from starling.app.container.admin import AdminServices, open_admin
from starling.app.runtime.background_tasks import in_background
from starling.core.errors import DatabaseUnavailableError
from starling.core.events import StoredEvent
from starling.core.principal import DEFAULT_TENANT
from starling.core.settings import Settings
from starling.infra.postgres.runs.acceptance import RunKey

app = typer.Typer(add_completion=False)


@app.command()
def tail(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help="The id of the run.")],
    after: Annotated[int, typer.Option(min=0, help="Begin after the event with this number.")] = 0,
    tenant: Annotated[str, typer.Option(help="The tenant of the run.")] = DEFAULT_TENANT,
    as_json: Annotated[bool, typer.Option("--json", help="Print each event as a line of JSON.")] = False,
) -> None:
    """Follow the events of a run from any point on, up to its end."""
    display = RunDisplay(results(), live=False, after=after, tenant=tenant)
    display.run_id = run

    def show_event(event: StoredEvent) -> None:
        if as_json:
            print_json({"seq": event.seq, **event.data})
        else:
            display.feed(event.seq, event.type, event.data)

    idle = None if as_json else display
    status = run_until_stopped(_follow(settings_of(context), parse_run_key(tenant, run), after, show_event, idle))
    if not status:
        typer.echo(f"There is nothing after event {after}: the run has ended.", err=True)
    if status not in ("", "succeeded"):
        raise typer.Exit(1)


async def _follow(
    settings: Settings, key: RunKey, after: int, show_event: Callable[[StoredEvent], None], idle: RunDisplay | None
) -> str:
    """Show each event as it comes; return the final status, empty where `after` lies beyond the last event.

    `idle` is a display: it needs the earlier events too, and shows which run a queued run waits for.
    """
    async with open_admin(settings) as admin, in_background(_show_run_ahead(admin, key, idle), "show-run-ahead"):
        await admin.reader.record(key)
        async for event in admin.reader.follow(key, after=0 if idle else after):
            show_event(event)
            if event.type == "done":
                return str(event.data["status"]) if event.seq > after else ""
    return ""


async def _show_run_ahead(admin: AdminServices, key: RunKey, display: RunDisplay | None) -> None:
    """Show after some seconds which run a queued run waits for."""
    await asyncio.sleep(IDLE_SECONDS)
    if display is None or not display.idle:
        return
    try:
        ahead = (await admin.listing.details(key)).behind
    except DatabaseUnavailableError:
        return  # the reader waits for Postgres, too
    if ahead and display.idle:
        display.behind(ahead.run_id, ahead.status.value)
