"""`starling console`: a link to the console, which begins a session with the rights of this command."""

import webbrowser
from typing import Annotated

import typer

from starling.app.cli.platform.connection import connection_of
from starling.app.cli.terminal.output import print_line

app = typer.Typer(add_completion=False)


@app.command()
def console(
    context: typer.Context,
    show: Annotated[bool, typer.Option("--print", help="Print the link instead of opening it.")] = False,
) -> None:
    """Open the console in a browser. The link is valid once, for 60 seconds; the session for twelve hours.

    It acts as the local token or the key that commands here send, and ends with that key.
    """
    api = connection_of(context).platform()
    code = api.post("/v1/console/codes", {})["code"]
    link = f"{api.url}/console/#code={code}"
    if show or not webbrowser.open(link):
        print_line(link)
