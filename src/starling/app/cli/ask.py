"""`starling ask` and `chat`: send requests to the API."""

import sys
from contextlib import suppress
from signal import SIGINT
from typing import Annotated, Any
from uuid import uuid4

import typer

from starling.app.cli.completion import THREADS
from starling.app.cli.options import JsonEvents, No, Yes
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.run.conversation import Conversation, conversation, fixed_answers, follow
from starling.app.cli.stop_signals import StoppedBySignal, install_signal_handlers
from starling.app.cli.terminal.output import print_note
from starling.app.cli.terminal.prompts import has_person, read_line
from starling.client.api import Api

app = typer.Typer(add_completion=False)

_Thread = Annotated[str | None, typer.Option(help="The conversation; default: a new one.", autocompletion=THREADS)]
_Branch = Annotated[str | None, typer.Option(help="The branch of the conversation; default: its current one.")]
_Url = Annotated[
    str | None,
    typer.Option(
        help="The address of the API; default: that of this data folder's platform, STARLING_URL, "
        "STARLING_HOST and PORT.",
        show_default=False,
    ),
]


@app.command()
def ask(  # noqa: PLR0913, PLR0917 - its options
    context: typer.Context,
    text: Annotated[str, typer.Argument(help="The request in plain words; - reads it from standard input.")],
    thread: _Thread = None,
    branch: _Branch = None,
    url: _Url = None,
    yes: Yes = False,
    no: No = False,
    as_json: JsonEvents = False,
) -> None:
    """Send a request to the API and show the events of its run.

    On a terminal it asks for what the run waits for. Ctrl-C leaves the run working, or cancels it if you say so. Set
    STARLING_API_KEY where the API needs a key.
    """
    fixed = fixed_answers(yes=yes, no=no)
    request = {"input": input_text(text), "thread_id": thread or f"cli-{uuid4().hex[:12]}", "branch": branch}
    api = connection_of(context).conversation(url)
    talk = conversation(api, fixed, as_json=as_json)
    _send(api, talk, request, may_wait=thread is not None)
    if talk.status != "succeeded":
        raise typer.Exit(1)


@app.command()
def chat(context: typer.Context, thread: _Thread = None, url: _Url = None, yes: Yes = False, no: No = False) -> None:
    """Hold a conversation: each line is a request on one thread, and its run is shown as `ask` shows it.

    Ctrl-D ends it. Ctrl-C leaves a run working, or cancels it if you say so, and the conversation goes on.
    """
    api, fixed = connection_of(context).conversation(url), fixed_answers(yes=yes, no=no)
    name, prompt = thread or f"cli-{uuid4().hex[:12]}", "> " if has_person() else ""
    print_note(f"Thread {name}: `starling chat --thread {name}` continues it. Ctrl-D ends.")
    with suppress(EOFError):
        while True:
            request = {"input": read_line(prompt).strip(), "thread_id": name}
            try:
                if request["input"]:
                    _send(api, conversation(api, fixed), request, may_wait=True)
            except StoppedBySignal as stopped:
                if stopped.signal != SIGINT or not prompt:
                    raise
                install_signal_handlers()


def _send(api: Api, talk: Conversation, request: dict[str, Any], *, may_wait: bool) -> None:
    """Send a request and show its run up to the end; `may_wait` if an earlier run of the thread may have to end."""

    def read() -> None:
        try:
            for event in api.ask(request):
                is_first = not talk.run_id
                talk.run_id = talk.display.run_id = api.run_id
                talk.event(event)
                if is_first and may_wait:
                    talk.show_run_ahead()
        finally:
            talk.run_id = talk.run_id or api.run_id

    follow(talk, read)


def input_text(text: str) -> str:
    """Return what was written: the text, or all of standard input for `-`."""
    return sys.stdin.read() if text == "-" else text
