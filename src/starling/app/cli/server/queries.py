"""`starling server list` and `show`: what is stored about servers."""

from textwrap import shorten

import typer

from starling.app.cli.completion import Server
from starling.app.cli.options import Json
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.terminal.formats import moment
from starling.app.cli.terminal.output import print_fields, print_json, print_line, print_list, print_table
from starling.client.api import Document, path_of

app = typer.Typer(add_completion=False)

_DESCRIPTION_CHARS = 100
_WHY = "`starling doctor` says why."
_FILES = {
    "own_user": "It runs as the user of STARLING_SERVER_USER.",
    "mount_namespace": "It runs in a mount namespace without the platform's data folder; it can't write its files.",
    "none": f"It can read the platform's token and password and write its files: {_WHY}",
}
_PROCESSES = {
    "apart": "It can't read other processes, nor end them by signals.",
    "signals": f"It can end other servers{{}} by signals: {_WHY}",
    "none": f"It can read other servers' variables, answer their calls, and end them{{}}: {_WHY}",
}
_FIELDS = ("name", "state", "tools", "source", "error", "remedy", "quarantined", "isolation", "breakers")
_SHOWN = ("name", "state", "source", "description", "error", "remedy")


@app.command("list")
def list_servers(context: typer.Context, as_json: Json = False) -> None:
    """List the servers and their state."""

    def document(server: Document) -> Document:
        return {name: server[name] for name in _FIELDS}

    found = connection_of(context).api().get("/v1/servers")["servers"]
    columns = ("NAME", "STATE", "TOOLS", "SOURCE", "WHAT IT SAYS")
    empty = "There are no servers. `starling server add time -- mcp-server-time` adds one."
    print_list(found, columns, row_of, empty=empty, as_json=as_json, document=document)


@app.command()
def show(context: typer.Context, name: Server, as_json: Json = False) -> None:
    """Show one server: its configuration, as written, and its tools with their effect on the world."""
    document = connection_of(context).api().get(path_of("servers", name))
    if as_json:
        print_json(document)
        return
    print_fields({field: document[field] for field in _SHOWN}, 12)
    for text in _isolation(document):
        print_fields({"isolation": text}, 12)
    for text in _failing(document):
        print_fields({"failing": text}, 12)
    print_line("config")
    print_json(document["config"])
    print_table(
        ("TOOL", "EFFECT", "DESCRIPTION"),
        [(tool["name"], tool["effect"], tool["description"]) for tool in document["tools"]],
    )
    for tool in document["tools"]:
        if tool["settings"]:
            names = ", ".join(sorted(tool["settings"]))
            print_line(f"{tool['name']} has settings of its own, which win over the configuration: {names}")
    if document["pins"]:
        print_table(
            ("TOOL", "STATE", "BY", "REASON"),
            [(pin["tool"], pin["state"], pin["by"], pin["reason"]) for pin in document["pins"]],
        )


def row_of(server: Document) -> tuple[str, ...]:
    """Return the cells of a server: what is wrong with it, else its description."""
    error = f"{server['error']} {server['remedy']}" if server["error"] else ""
    tools = ", ".join(server["quarantined"])
    waiting = f"Quarantined: {tools}. `starling server approve {server['name']}` shows why." if tools else ""
    reached = (text for text in _isolation(server) if text.endswith(_WHY))
    said = " ".join(filter(None, (*_failing(server), error, waiting, *reached))) or shorten(
        server["description"], _DESCRIPTION_CHARS, placeholder=" …"
    )
    return server["name"], server["state"], str(server["tools"]), server["source"], said


def _isolation(server: Document) -> list[str]:
    """Return what a stdio server can and can't do to files and processes."""
    if (found := server["isolation"]) is None:
        return []
    platform = "" if found["files"] == "own_user" else " and the platform"
    return [_FILES[found["files"]], _PROCESSES[found["processes"]].format(platform)]


def _failing(server: Document) -> list[str]:
    """Return where calls of a server fail at once, and why."""
    return [
        f"In {found['process']} calls fail at once since {moment(found['since'])}, the next trial is at"
        f" {moment(found['retry_at'])} or later: {found['reason']}"
        for found in server["breakers"]
    ]
