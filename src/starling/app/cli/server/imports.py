"""`starling server import`: servers of MCP registry documents, as a plan first."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from mcp_gateway.configuration.registry_documents import RegistryEntry, read_registry_documents
from starling.app.cli.options import Json, Yes
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.terminal.output import print_json, print_line, progress
from starling.app.cli.terminal.prompts import confirmed
from starling.client.api import Api, Document
from starling.core.errors import ConfigurationError, StarlingError
from starling.core.settings.schema import environment

app = typer.Typer(add_completion=False)

_STDIN = "-"
_LISTING_SECONDS = 120.0  # a package is downloaded first
_OTHERWISE = "Nothing was added: `--yes` adds these servers."


@app.command("import")
def import_servers(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="A `server.json`, or - for standard input.")],
    name: Annotated[str | None, typer.Option(help="The server's name; default: the last part of its own.")] = None,
    remote: Annotated[bool, typer.Option("--remote", help="Prefer an address to a package.")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Add servers of MCP registry documents, with pinned versions, once you have confirmed the plan.

    The plan says what would run or be connected to, and which variables of the platform's environment that needs. Exits
    with 1 if a document can't be used or a server can't be added.
    """
    source = "Standard input" if file == _STDIN else file
    entries = read_registry_documents(_text(file), source, name=name, remote=remote)
    good = [entry for entry in entries if not entry.fault]
    if not as_json:
        for entry in entries:
            _print_plan(entry)
    added: list[Document] = []
    failed: dict[str, str] = {}
    if good and confirmed("Add these servers?", yes=yes, quiet=as_json, otherwise=_OTHERWISE):
        added, failed = _add(connection_of(context).api(), good)
    if as_json:
        plan = [asdict(one) | {"missing": sorted(one.required.keys() - environment().keys())} for one in entries]
        print_json({"plan": plan, "added": added, "failed": failed})
    else:
        _print_result(added, failed)
    if failed or len(good) < len(entries):
        raise typer.Exit(1)


def _text(file: str) -> str:
    try:
        return sys.stdin.read() if file == _STDIN else Path(file).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} can't be read: {error}.", "Check the path.") from None


def _add(api: Api, entries: Sequence[RegistryEntry]) -> tuple[list[Document], dict[str, str]]:
    added: list[Document] = []
    failed: dict[str, str] = {}
    for entry in entries:
        try:
            with progress(f"Listing {entry.name} …"):
                body = {"name": entry.name, "config": entry.config, "imported": True}
                added.append(api.post("/v1/servers", body, seconds=_LISTING_SECONDS))
        except StarlingError as error:
            failed[entry.name] = f"{error.message} {error.remedy}".strip()
    return added, failed


def _print_plan(entry: RegistryEntry) -> None:
    if entry.fault:
        print_line(f"! {entry.document} can't be added: {entry.fault}.", "yellow")
        return
    print_line(f"+ {entry.name}, from {entry.document}")
    print_line(f"  {_what(entry.config)}")
    for key in ("env", "headers"):
        for variable, value in entry.config.get(key, {}).items():
            print_line(f"  with {variable}={value}")
    for variable, about in entry.required.items():
        missing = "" if variable in environment() else ", which is not set here"
        print_line(f"  needs {variable}{missing}" + (f": {about}" if about else ""), "yellow" if missing else None)


def _what(config: Mapping[str, Any]) -> str:
    if "url" in config:
        return f"connects to {config['url']}"
    return f"runs {shlex.join([config['command'], *config['args']])}"


def _print_result(added: Sequence[Document], failed: Mapping[str, str]) -> None:
    for server in added:
        waiting = len(server["quarantined"])
        tools = f"{len(server['tools'])} tools" + (f", and {waiting} that wait for approval" if waiting else "")
        print_line(f"{server['name']} is in epoch {server['epoch']}, with {tools}.")
    for name, why in failed.items():
        print_line(f"! {name} was not added: {why}", "yellow")
