"""`starling run tail`: the events of a run, up to its end."""

from dataclasses import dataclass
from typing import Annotated

import typer

from starling.app.cli.connection import connection_of
from starling.app.cli.run.run_name import RUN_HELP, find_run
from starling.app.cli.run_source import StreamedEvent
from starling.app.cli.terminal.output import print_json, results
from starling.app.cli.terminal.run_display import RunDisplay
from starling.core.principal import DEFAULT_TENANT

app = typer.Typer(add_completion=False)


@app.command()
def tail(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help=RUN_HELP)],
    after: Annotated[int, typer.Option(min=0, help="Begin after the event with this number.")] = 0,
    tenant: Annotated[str, typer.Option(help="The tenant of the run.")] = DEFAULT_TENANT,
    as_json: Annotated[bool, typer.Option("--json", help="Print each event as a line of JSON.")] = False,
) -> None:
    """Follow the events of a run from any point on, up to its end."""
    source = connection_of(context).source(tenant)
    run_id = find_run(source, run)
    display = RunDisplay(results(), live=False, after=after, tenant=tenant)
    display.run_id = run_id
    watcher = _Watcher(display, after, as_json=as_json)
    source.follow(run_id, after if as_json else 0, watcher)  # the display needs the earlier events, too
    if not watcher.status:
        typer.echo(f"There is nothing after event {after}: the run has ended.", err=True)
    if watcher.status not in ("", "succeeded"):
        raise typer.Exit(1)


@dataclass(slots=True)
class _Watcher:
    """Prints events; `status` is the final one, empty if the run ended with or before event `after`."""

    display: RunDisplay
    after: int
    as_json: bool
    status: str = ""

    @property
    def idle(self) -> bool:
        return self.display.idle and not self.as_json

    def event(self, event: StreamedEvent) -> None:
        if self.as_json:
            print_json({"seq": event.seq, **event.data})
        else:
            self.display.feed(event.seq, event.type, event.data)
        if event.type == "done" and event.seq > self.after:
            self.status = str(event.data["status"])

    def behind(self, run_id: str, status: str) -> None:
        self.display.behind(run_id, status)
