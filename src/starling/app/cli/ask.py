"""`starling ask`: send a request to the API."""

import sys
from collections.abc import Mapping
from threading import Timer
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from starling.app.cli.platform.api_source import show_run_ahead
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.platform.run_source import IDLE_SECONDS
from starling.app.cli.run.conversation import Conversation, conversation, display_for, fixed_answers, follow

if TYPE_CHECKING:
    from starling.app.cli.platform.api_client import ApiClient

app = typer.Typer(add_completion=False)


@app.command()
def ask(  # noqa: PLR0913, PLR0917 - its options
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
    yes: Annotated[bool, typer.Option("--yes", help="Approve every call that asks for approval.")] = False,
    no: Annotated[bool, typer.Option("--no", help="Refuse every call, and answer no questions.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print each event as a line of JSON.")] = False,
) -> None:
    """Send a request to the API and show the events of its run.

    On a terminal it asks for what the run waits for. Ctrl-C leaves the run working, or cancels it if you say so. Set
    STARLING_API_KEY where the API needs a key.
    """
    fixed = fixed_answers(yes=yes, no=no)
    request = {"input": input_text(text), "thread_id": thread or f"cli-{uuid4().hex[:12]}"}
    api, source = connection_of(context).conversation(url)
    display = display_for(live=True, as_json=as_json)
    talk = conversation(source, display, fixed, as_json=as_json)
    with display:
        follow(talk, lambda: _read(api, request, talk))
    if talk.status != "succeeded":
        raise typer.Exit(1)


def input_text(text: str) -> str:
    """Return what was written: the text, or all of standard input for `-`."""
    return sys.stdin.read() if text == "-" else text


def _read(api: "ApiClient", request: Mapping[str, Any], talk: Conversation) -> None:
    idle_timer: Timer | None = None
    try:
        for event in api.ask(request):
            talk.run_id = talk.display.run_id = api.run_id
            talk.event(event)
            if event.type == "run_started":
                idle_timer = Timer(IDLE_SECONDS, show_run_ahead, (api, api.run_id, talk))
                idle_timer.daemon = True
                idle_timer.start()
    finally:
        talk.run_id = talk.run_id or api.run_id
        if idle_timer is not None:
            idle_timer.cancel()
