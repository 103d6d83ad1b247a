"""`starling server`: MCP servers. The commands that start servers import more, so they have a module of their own."""

import typer

from starling.app.cli.lazy_commands import Lazy, lazy_group

_READING, _CHANGING = "starling.app.cli.server.queries", "starling.app.cli.server.changes"
_COMMANDS = {
    "list": Lazy(_READING, "List the servers and their state."),
    "show": Lazy(_READING, "Show one server: its configuration and its tools."),
    "test": Lazy(_CHANGING, "Start a server, list its tools and compare them with what is stored."),
    "effects": Lazy("starling.app.cli.server.effects", "Show the effects of a server's tools, or propose them."),
    "tool": Lazy(
        "starling.app.cli.server.tools",
        "Show the settings of one tool and where they come from, or change them.",
    ),
    "approve": Lazy("starling.app.cli.server.tools", "Approve tools that are new or were changed by their server."),
    "add": Lazy(_CHANGING, "Add a server and its specialist agent."),
    "enable": Lazy(_CHANGING, "Enable a server of the mcpServers file."),
    "import": Lazy("starling.app.cli.server.imports", "Add servers of MCP registry documents, as a plan first."),
    "remove": Lazy(_CHANGING, "Remove a server and its specialist agent."),
}

app = typer.Typer(cls=lazy_group(_COMMANDS), add_completion=False, no_args_is_help=True)


@app.callback()
def root() -> None:
    """Manage MCP servers."""
