"""`starling server list` and `show`: what is stored about servers."""

from textwrap import shorten
from typing import Annotated, Any

import typer

from mcp_gateway.config import server_of
from mcp_gateway.repository import ServerRow
from starling.app.cli.command_settings import settings_of
from starling.app.cli.signals import run_until_stopped
from starling.app.cli.terminal.output import print_json, print_line, print_table
from starling.app.container.admin import open_admin
from starling.core.errors import NotFoundError
from starling.core.settings import Settings

app = typer.Typer(add_completion=False)

_DESCRIPTION_CHARS = 100


@app.command("list")
def list_servers(
    context: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """List the servers and their state."""
    rows = run_until_stopped(_rows(settings_of(context)))
    if as_json:
        print_json([_summary(row) for row in rows])
    elif rows:
        print_table(("NAME", "STATE", "TOOLS", "SOURCE", "WHAT IT SAYS"), [_cells(row) for row in rows])
    else:
        print_line("There are no servers. `starling server add time -- mcp-server-time` adds one.")


@app.command()
def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The server.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show one server: its configuration, as written, and its tools with their effect on the world."""
    document = run_until_stopped(_document(settings_of(context), name))
    if as_json:
        print_json(document)
        return
    for field in ("name", "state", "source", "description", "error", "remedy"):
        if document[field]:
            print_line(f"{field:<12} {document[field]}")
    print_line("config")
    print_json(document["config"])
    print_table(("TOOL", "EFFECT", "DESCRIPTION"), [tuple(tool.values())[:3] for tool in document["tools"]])


async def _rows(settings: Settings) -> list[ServerRow]:
    async with open_admin(settings) as admin:
        return await admin.servers.servers()


async def _document(settings: Settings, name: str) -> dict[str, Any]:
    async with open_admin(settings) as admin:
        rows, definitions = await admin.servers.servers_and_tools()
    row = next((row for row in rows if row.name == name), None)
    if row is None:
        raise NotFoundError("server", name, f"Known are: {', '.join(row.name for row in rows) or 'none'}.")
    options = server_of(row.config).options
    tools = [
        {
            "name": tool,
            "effect": options.effect_of(tool).value,
            "description": definitions[name, tool].get("description") or "",
            "hash": pin,
        }
        for tool, pin in sorted(row.tools.items())
    ]
    return _summary(row) | {"description": row.description, "config": row.config, "tools": tools}


def _summary(row: ServerRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "state": row.state,
        "tools": len(row.tools),
        "source": row.source,
        "error": row.error,
        "remedy": row.remedy,
    }


def _cells(row: ServerRow) -> tuple[str, ...]:
    said = f"{row.error} {row.remedy}" if row.error else shorten(row.description, _DESCRIPTION_CHARS, placeholder=" …")
    return row.name, row.state, str(len(row.tools)), row.source, said
