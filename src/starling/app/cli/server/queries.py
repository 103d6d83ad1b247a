"""`starling server list` and `show`: what is stored about servers."""

from collections.abc import Mapping
from textwrap import shorten
from typing import Annotated

import typer

from starling.app.cli.platform.connection import connection_of
from starling.app.cli.platform.run_source import Document
from starling.app.cli.terminal.moments import moment
from starling.app.cli.terminal.output import print_json, print_line, print_table

app = typer.Typer(add_completion=False)

_DESCRIPTION_CHARS = 100
_VISIBLE = "It can read the platform's token and password: `starling doctor` says why."
_ISOLATIONS = {
    "own_user": "It runs as the user of STARLING_SERVER_USER.",
    "mount_namespace": "It runs in a mount namespace without the platform's files.",
}
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
                {name: server[name] for name in _FIELDS}
                | {
                    "quarantined": server.get("quarantined", {}),
                    "isolation": server.get("isolation"),
                    "breakers": server.get("breakers", []),
                }
                for server in found
            ]
        )
    elif found:
        print_table(("NAME", "STATE", "TOOLS", "SOURCE", "WHAT IT SAYS"), [row_of(server) for server in found])
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
    if isolation := document.get("isolation"):
        print_line(f"{'isolation':<12} {_VISIBLE if isolation == 'none' else _ISOLATIONS[isolation]}")
    for text in _failing(document):
        print_line(f"{'failing':<12} {text}")
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


def row_of(server: Document) -> tuple[str, ...]:
    error = f"{server['error']} {server['remedy']}" if server["error"] else ""
    waiting = _quarantined(server["name"], server.get("quarantined", {}))
    visible = _VISIBLE if server.get("isolation") == "none" else ""
    said = " ".join(filter(None, (*_failing(server), error, waiting, visible))) or shorten(
        server["description"], _DESCRIPTION_CHARS, placeholder=" …"
    )
    return server["name"], server["state"], str(server["tools"]), server["source"], said


def _quarantined(name: str, tools: Mapping[str, str]) -> str:
    if not tools:
        return ""
    return f"Quarantined: {', '.join(tools)}. `starling server approve {name}` shows why."


def _failing(server: Document) -> list[str]:
    """Return where calls of a server fail at once, and why."""
    return [
        f"In {found['process']} calls fail at once since {moment(found['since'])}, the next trial is at"
        f" {moment(found['retry_at'])} or later: {found['reason']}"
        for found in server.get("breakers", ())
    ]
