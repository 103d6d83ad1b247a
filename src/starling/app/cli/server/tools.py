"""`starling server approve` and `tool`: quarantined tools with what changed of them, and the settings of one tool."""

import json
from collections.abc import Sequence
from textwrap import shorten
from typing import Annotated, Any

import typer

from starling.app.cli.completion import Server
from starling.app.cli.options import Json, Yes, split_pairs
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.terminal.output import print_json, print_line, print_table
from starling.app.cli.terminal.prompts import confirmed
from starling.client.api import Document, path_of
from starling.core.errors import InvalidRequestError, NotFoundError

app = typer.Typer(add_completion=False)
_VALUE_CHARS = 100


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
    path = path_of("servers", name)
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
        for hint in pin.get("hints", ()):
            print_line(f"  Hint: this may be meant to instruct agents: “{hint}”.", "yellow")
        for line in str(pin["diff"]).splitlines():
            print_line(f"  {line}", {"+": "green", "-": "red"}.get(line[:1]))


@app.command()
def tool(
    context: typer.Context,
    server: Server,
    name: Annotated[str, typer.Argument(metavar="TOOL", help="The tool.")],
    values: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A setting that wins over the server's configuration; VALUE is JSON or a text.",
        ),
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="NAME", help="Take a setting back: the configuration holds.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the settings of one tool that are in effect and where each comes from; with --set or --unset change them.

    They are the fields of `x-starling.tools` in an mcpServers file. What is set here stays when the file is reloaded.
    """
    api, path = connection_of(context).api(), path_of("servers", server, "tools", name)
    document = api.get(path)
    if values or unset:
        document = api.put(path, _changed(document["settings"], values or (), unset or ()))
    if as_json:
        print_json(document)
        return
    if values or unset:
        print_line(f"Epoch {document['epoch']} has these settings of {server}.{name}:")

    def shown(value: Any) -> str:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return "" if value is None else shorten(text, _VALUE_CHARS, placeholder=" …")

    rows = [(key, shown(found["value"]), found["source"]) for key, found in document["effective"].items()]
    print_table(("SETTING", "VALUE", "SOURCE"), rows)


def _changed(stored: dict[str, Any], values: Sequence[str], unset: Sequence[str]) -> dict[str, Any]:
    """Return the settings after a change. Raises InvalidRequestError for one that can't be read."""
    if missing := [name for name in unset if name not in stored]:
        known = ", ".join(sorted(stored)) or "none"
        raise InvalidRequestError(f"{missing[0]} isn't set for this tool.", f"Settings of its own are: {known}.")
    changed = {name: value for name, value in stored.items() if name not in unset}
    for name, text in split_pairs(values, "--set NAME=VALUE").items():
        try:
            changed[name] = json.loads(text)
        except ValueError:
            changed[name] = text
    return changed
