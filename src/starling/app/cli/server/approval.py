"""`starling server approve`: tools that are quarantined, with what changed of them."""

from collections.abc import Sequence
from typing import Annotated
from urllib.parse import quote

import typer

from starling.app.cli.options import Json, Server, Yes
from starling.app.cli.platform.api import Document
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.terminal.line_input import confirmed
from starling.app.cli.terminal.output import print_json, print_line
from starling.core.errors import InvalidRequestError, NotFoundError

app = typer.Typer(add_completion=False)


@app.command()
def approve(
    context: typer.Context,
    name: Server,
    tool: Annotated[str | None, typer.Argument(help="The tool; without it, all that wait are shown.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Approve all tools of the server that wait.")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Show how the offered definitions differ from the approved ones, and approve them: runs can use them from then on.

    Without TOOL and --all it only shows them. What is approved is what was shown: a definition that its server changed
    again meanwhile is refused.
    """
    api = connection_of(context).api()
    path = f"/v1/servers/{quote(name, safe='')}"
    waiting = _waiting(api.get(path), tool)
    if not as_json:
        _show(name, waiting)
    wanted = waiting and (tool is not None or every)
    wanted = wanted and confirmed("Approve?", yes=yes, quiet=as_json, otherwise="Not approved: `--yes` approves.")
    chosen: Sequence[Document] = waiting if wanted else ()
    hashes: dict[str, str] = {pin["tool"]: pin["offered_hash"] for pin in chosen}
    epoch = api.post(f"{path}/approve", {"tools": hashes})["epoch"] if hashes else None
    if as_json:
        print_json({"name": name, "approved": sorted(hashes), "waiting": waiting, "epoch": epoch})
    elif epoch is not None:
        print_line(f"Approved in epoch {epoch}: {', '.join(sorted(hashes))}.")
    elif waiting and tool is None and not every:
        print_line(f"`starling server approve {name} TOOL` approves one of them, `--all` all.")


def _waiting(server: Document, tool: str | None) -> Sequence[Document]:
    """Return the pins that can be approved. Raises NotFoundError for a tool that has none."""
    found = [pin for pin in server["pins"] if pin["offered_hash"] and tool in (None, pin["tool"])]
    if tool is not None and not found:
        if any(known["name"] == tool for known in server["tools"]):
            raise InvalidRequestError(f"{tool} is approved as it is offered.", "Nothing was changed.")
        raise NotFoundError("offered tool", tool, f"`starling server show {server['name']}` lists its tools.")
    return found


def _show(name: str, waiting: Sequence[Document]) -> None:
    if not waiting:
        print_line(f"No tool of {name} waits for approval.")
    for pin in waiting:
        what = "approved by the policy alone" if pin["state"] == "approved" else pin["reason"]
        print_line(f"{name}.{pin['tool']}: {what}", "yellow")
        for line in str(pin["diff"]).splitlines():
            print_line(f"  {line}", {"+": "green", "-": "red"}.get(line[:1]))
