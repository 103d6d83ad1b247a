"""`starling ask`: send a request to the API."""

import sys
from threading import Timer
from typing import Annotated
from uuid import uuid4

import typer

from starling.app.cli.api_source import show_run_ahead
from starling.app.cli.connection import connection_of
from starling.app.cli.run_source import IDLE_SECONDS
from starling.app.cli.stop_signals import StoppedBySignal
from starling.app.cli.terminal.output import print_json, results
from starling.app.cli.terminal.run_display import RunDisplay

app = typer.Typer(add_completion=False)


@app.command()
def ask(
    context: typer.Context,
    text: Annotated[str, typer.Argument(help="The request in plain words; - reads it from standard input.")],
    thread: Annotated[str | None, typer.Option(help="The conversation to continue; default: a new one.")] = None,
    url: Annotated[
        str | None,
        typer.Option(
            help="The address of the API; default: that of this data folder's platform, STARLING_URL, "
            "STARLING_HOST and PORT.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each event as a line of JSON.")] = False,
) -> None:
    """Send a request to the API and show the events of its run. Ctrl-C does not stop the run.

    Set STARLING_API_KEY where the API needs a key.
    """
    request = {"input": sys.stdin.read() if text == "-" else text, "thread_id": thread or f"cli-{uuid4().hex[:12]}"}
    display = RunDisplay(results())
    api, status = connection_of(context).streams(url), ""
    idle_timer: Timer | None = None
    try:
        for event in api.ask(request):
            display.run_id = api.run_id
            status = event.data.get("status", "") if event.type == "done" else status
            if as_json:
                print_json({"seq": event.seq, **event.data})
            else:
                display.feed(event.seq, event.type, event.data)
                if event.type == "run_started":
                    idle_timer = Timer(IDLE_SECONDS, show_run_ahead, (api, api.run_id, display))
                    idle_timer.daemon = True
                    idle_timer.start()
    except StoppedBySignal:
        if api.run_id:
            typer.echo(f"\nThe run continues: `starling run tail {api.run_id}` follows it.", err=True)
        raise
    finally:
        if idle_timer is not None:
            idle_timer.cancel()
    if status != "succeeded":
        raise typer.Exit(1)
