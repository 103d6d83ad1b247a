"""`starling ask`: send a request to the API."""

import sys
from typing import Annotated
from uuid import uuid4

import typer

from starling.app.cli.options import JsonEvents, No, Yes
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.run.conversation import conversation, fixed_answers, follow

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
    yes: Yes = False,
    no: No = False,
    as_json: JsonEvents = False,
) -> None:
    """Send a request to the API and show the events of its run.

    On a terminal it asks for what the run waits for. Ctrl-C leaves the run working, or cancels it if you say so. Set
    STARLING_API_KEY where the API needs a key.
    """
    fixed = fixed_answers(yes=yes, no=no)
    request = {"input": input_text(text), "thread_id": thread or f"cli-{uuid4().hex[:12]}"}
    api = connection_of(context).conversation(url)
    talk = conversation(api, fixed, as_json=as_json)

    def read() -> None:
        try:
            for event in api.ask(request):
                is_first = not talk.run_id
                talk.run_id = talk.display.run_id = api.run_id
                talk.event(event)
                if is_first and thread:
                    talk.show_run_ahead()
        finally:
            talk.run_id = talk.run_id or api.run_id

    follow(talk, read)
    if talk.status != "succeeded":
        raise typer.Exit(1)


def input_text(text: str) -> str:
    """Return what was written: the text, or all of standard input for `-`."""
    return sys.stdin.read() if text == "-" else text
