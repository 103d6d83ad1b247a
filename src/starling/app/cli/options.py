"""Options and arguments that commands share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from starling.core.errors import InvalidRequestError

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JsonEvents = Annotated[bool, typer.Option("--json", help="Print each event as a line of JSON.")]
Tenant = Annotated[str, typer.Option(help="The tenant whose runs, agents, teams and skills are meant.")]
OneTenant = Annotated[str | None, typer.Option("--tenant", help="This tenant only; default: all.")]
Utc = Annotated[bool, typer.Option("--utc", help="Show times in UTC instead of the local time zone.")]
Full = Annotated[bool, typer.Option("--full", help="Show whole ids and texts.")]
Yes = Annotated[bool, typer.Option("--yes", help="Approve what asks for approval or confirmation.")]
No = Annotated[bool, typer.Option("--no", help="Refuse what asks for approval, and answer no questions.")]
Latest = Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many, latest first.")]
Best = Annotated[int, typer.Option("--limit", min=1, max=200, help="How many, best first.")]
Reason = Annotated[str, typer.Option(help="The reason; callers and models may see it.")]

Host = Annotated[str | None, typer.Option(help="The address to listen on; other machines need a key.")]
Port = Annotated[int | None, typer.Option(help="The port to listen on; 0 takes a free one.")]
McpConfig = Annotated[
    Path | None, typer.Option(help="An mcpServers file; default: STARLING_MCP_CONFIG, then mcp.json in this folder.")
]


def split_pairs(values: Sequence[str], form: str) -> dict[str, str]:
    """Return the values of an option by their keys; `form` is like `--set KEY=VALUE`. Raises InvalidRequestError."""
    if wrong := [value for value in values if "=" not in value]:
        raise InvalidRequestError(f"{wrong[0]!r} has no `=`.", f"Write {form}.")
    return dict(value.split("=", 1) for value in values)
