"""`starling server list` and `show`: what is stored about servers."""

from collections.abc import Mapping
from textwrap import shorten
from typing import Annotated

import typer

from starling.app.cli.platform.connection import connection_of
from starling.app.cli.platform.run_source import Document
from starling.app.cli.terminal.output import print_json, print_line, print_table

app = typer.Typer(add_completion=False)

_DESCRIPTION_CHARS = 100
_FIELDS = ("name", "state", "tools", "source", "error", "remedy")


@app.command("list")
def list_servers(
    context: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """List the servers and their state."""
    found = connection_of(context).source().servers()
    if as_json:
        print_json(
            [
                {name: server[name] for name in _FIELDS} | {"quarantined": server.get("quarantined", {})}
                for server in found
            ]
        )
    elif found:
        print_table(("NAME", "STATE", "TOOLS", "SOURCE", "WHAT IT SAYS"), [_cells(server) for server in found])
    else:
        print_line("There are no servers. `starling server add time -- mcp-server-time` adds one.")


@app.command()
def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The server.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show one server: its configuration, as written, and its tools with their effect on the world."""
    document = connection_of(context).source().server(name)
    if as_json:
        print_json(document)
        return
    for field in ("name", "state", "source", "description", "error", "remedy"):
        if document[field]:
            print_line(f"{field:<12} {document[field]}")
    print_line("config")
    print_json(document["config"])
    print_table(
        ("TOOL", "EFFECT", "DESCRIPTION"),
        [(tool["name"], tool["effect"], tool["description"]) for tool in document["tools"]],
    )
    for tool in document["tools"]:
        if tool.get("settings"):
            names = ", ".join(sorted(tool["settings"]))
            print_line(f"{tool['name']} has settings of its own, which win over the configuration: {names}")
    if document.get("pins"):
        print_table(
            ("TOOL", "STATE", "BY", "REASON"),
            [(pin["tool"], pin["state"], pin["by"], pin["reason"]) for pin in document["pins"]],
        )


def _cells(server: Document) -> tuple[str, ...]:
    error = f"{server['error']} {server['remedy']}" if server["error"] else ""
    waiting = _quarantined(server["name"], server.get("quarantined", {}))
    said = f"{error} {waiting}".strip() or shorten(server["description"], _DESCRIPTION_CHARS, placeholder=" …")
    return server["name"], server["state"], str(server["tools"]), server["source"], said


def _quarantined(name: str, tools: Mapping[str, str]) -> str:
    if not tools:
        return ""
    return f"Quarantined: {', '.join(tools)}. `starling server approve {name}` shows why."
