"""`starling server tool`: the settings of one tool."""

import json
from collections.abc import Sequence
from textwrap import shorten
from typing import Annotated, Any
from urllib.parse import quote

import typer

from starling.app.cli.options import Json, Server
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.terminal.output import print_json, print_line, print_table
from starling.core.errors import InvalidRequestError

app = typer.Typer(add_completion=False)

_VALUE_CHARS = 100


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
    api, path = connection_of(context).api(), f"/v1/servers/{quote(server, safe='')}/tools/{quote(name, safe='')}"
    document = api.get(path)
    if values or unset:
        document = api.put(path, _changed(document["settings"], values or (), unset or ()))
    if as_json:
        print_json(document)
        return
    if values or unset:
        print_line(f"Epoch {document['epoch']} has these settings of {server}.{name}:")
    rows = [(key, _shown(found["value"]), found["source"]) for key, found in document["effective"].items()]
    print_table(("SETTING", "VALUE", "SOURCE"), rows)


def _changed(stored: dict[str, Any], values: Sequence[str], unset: Sequence[str]) -> dict[str, Any]:
    """Return the settings after a change. Raises InvalidRequestError for one that can't be read."""
    if missing := [name for name in unset if name not in stored]:
        known = ", ".join(sorted(stored)) or "none"
        raise InvalidRequestError(f"{missing[0]} isn't set for this tool.", f"Settings of its own are: {known}.")
    changed = {name: value for name, value in stored.items() if name not in unset}
    for name, text in split_pairs(values, "NAME").items():
        try:
            changed[name] = json.loads(text)
        except ValueError:
            changed[name] = text
    return changed


def split_pairs(values: Sequence[str], key: str) -> dict[str, str]:
    """Return the values of `--set KEY=VALUE` by their keys. Raises InvalidRequestError."""
    if wrong := [value for value in values if "=" not in value]:
        raise InvalidRequestError(f"--set {wrong[0]} has no value.", f"Write --set {key}=VALUE.")
    return dict(value.split("=", 1) for value in values)


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return "" if value is None else shorten(text, _VALUE_CHARS, placeholder=" …")
