"""`starling server effects`, and the confirmation of effects that a server's annotations propose."""

import json
from collections.abc import Sequence
from typing import Annotated

import typer

from mcp_gateway.configuration.effect_suggestions import EffectSuggestion, suggested_effects, with_effects
from mcp_gateway.configuration.servers import ServerConfig, server_of
from mcp_gateway.registration.repository import ServerRow
from mcp_gateway.registration.server_rows import effective
from starling.app.cli.options import Json, Server, Yes
from starling.app.cli.platform.command_settings import settings_of, with_servers_found_here
from starling.app.cli.platform.settings_file import MCP_FILE
from starling.app.cli.server.file_effects import FileEdit
from starling.app.cli.signals import run_until_stopped
from starling.app.cli.terminal.line_input import confirmed
from starling.app.cli.terminal.output import (
    diagnostics,
    print_json,
    print_line,
    print_table,
    progress,
    write,
    write_table,
)
from starling.app.container.database import find_database
from starling.app.container.services import open_services
from starling.app.container.storage import open_storage
from starling.core.errors import ConfigurationError, NotFoundError
from starling.core.json import JsonObject
from starling.core.settings.schema import Settings
from starling.core.tool_calls import Effect
from starling.infra.postgres.audit import Actor

app = typer.Typer(add_completion=False)

type _Tools = dict[str, JsonObject]


@app.command()
def effects(
    context: typer.Context,
    name: Server,
    propose: Annotated[
        bool,
        typer.Option("--propose", help="Propose effects from the server's annotations, and set them if confirmed."),
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Show the effects of a server's tools; with --propose, what its annotations propose for tools without one.

    Annotations are what a server says about itself: they count once you have confirmed them. Those of a server of a
    file are written into the file, whose comments stay.
    """
    settings = settings_of(context)
    rows, row, tools = run_until_stopped(_stored(settings, name))
    config, options = server_of(row.config), effective(row).options
    proposed = suggested_effects(tools, options) if propose else []
    if not as_json and not propose:
        print_table(("TOOL", "EFFECT"), [(tool, options.effect_of(tool).value) for tool in sorted(tools)])
        return
    if not as_json and not useful_of(proposed):
        print_line(f"The annotations of {name} propose no other effect for a tool that has none set.")
        return
    if row.source == "file":
        chosen = useful_of(proposed)
        epoch = _set_in_file(settings, rows, name, chosen, yes=yes, quiet=as_json) if chosen else None
    else:
        chosen = confirmed_effects(name, proposed, yes=yes, quiet=as_json)
        epoch = run_until_stopped(_set(settings, name, with_effects(config, chosen))) if chosen else None
    if as_json:
        known = {tool: options.effect_of(tool).value for tool in sorted(tools)}
        print_json({"name": name, "effects": known, "proposed": documents_of(proposed), "epoch": epoch})
    elif epoch is not None:
        listed = ", ".join(f"{item.tool} {item.effect.value}" for item in chosen)
        print_line(f"{name} has these effects in epoch {epoch}: {listed}.")


def confirmed_effects(
    name: str, proposed: Sequence[EffectSuggestion], *, yes: bool, quiet: bool
) -> list[EffectSuggestion]:
    """Return the proposed effects that are to be set: on a terminal those that a person confirms, with `yes` all.

    Elsewhere none is set, and what `--yes` would set is printed on stderr, unless `quiet`.
    """
    useful = useful_of(proposed)
    if not useful:
        return []
    if not (yes or quiet):
        write(diagnostics(), f"{name} describes its own tools as follows (other tools stay `unsafe`):\n")
        rows = [(item.tool, item.effect.value, item.reason) for item in useful]
        write_table(diagnostics(), ("TOOL", "EFFECT", "ANNOTATIONS"), rows)
    otherwise = "Not set: `--yes` sets these effects."
    return useful if confirmed("Set these effects?", yes=yes, quiet=quiet, otherwise=otherwise) else []


def useful_of(proposed: Sequence[EffectSuggestion]) -> list[EffectSuggestion]:
    """Return the proposed effects that say more than that a tool is `unsafe`, as every tool is by default."""
    return [item for item in proposed if item.effect is not Effect.UNSAFE]


def documents_of(proposed: Sequence[EffectSuggestion]) -> list[dict[str, str]]:
    """Return proposed effects as JSON."""
    return [{"tool": item.tool, "effect": item.effect.value, "annotations": item.reason} for item in proposed]


def _set_in_file(
    settings: Settings,
    rows: Sequence[ServerRow],
    name: str,
    useful: Sequence[EffectSuggestion],
    *,
    yes: bool,
    quiet: bool,
) -> int | None:
    """Write effects into the file that the server is from, and return the epoch that has them, if there is one."""
    config = server_of(next(row for row in rows if row.name == name).config)
    try:
        edit = FileEdit.of(with_servers_found_here(settings).mcp_config or MCP_FILE, name, config, useful)
    except ConfigurationError as error:
        options = with_effects(config, useful).document["x-starling"]
        where = f"into {name} of its mcpServers"
        write(diagnostics(), f"{error.message} Write this yourself {where}, then `starling registry reload`:\n")
        if not quiet:
            print_line(f'"x-starling": {json.dumps(options, indent=2, ensure_ascii=False)}')
        return None
    if not quiet:
        edit.show()
    otherwise = f"Not written: `--yes` writes this to {edit.file}."
    if not confirmed(f"Write this to {edit.file}?", yes=yes, quiet=quiet, otherwise=otherwise):
        return None
    edit.write()
    if not edit.changes_only(name, rows):
        hint = "`starling registry plan` shows what else it changes, `starling registry reload` applies it."
        write(diagnostics(), f"{edit.file} is written. {hint}\n")
        return None
    with progress(f"Listing {name} …"):
        return run_until_stopped(_reload(settings, edit))


async def _stored(settings: Settings, name: str) -> tuple[Sequence[ServerRow], ServerRow, _Tools]:
    async with open_storage(settings, find_database(settings)) as storage:
        rows, definitions = await storage.servers.servers_and_tools()
    row = next((row for row in rows if row.name == name), None)
    if row is None:
        raise NotFoundError("server", name, f"Known are: {', '.join(row.name for row in rows) or 'none'}.")
    return rows, row, {tool: definitions[name, tool] for tool in row.tools}


async def _reload(settings: Settings, edit: FileEdit) -> int:
    async with open_services(settings, find_database(settings)) as services:
        return (await services.registry.reload(edit.config, Actor.local("cli"))).epoch


async def _set(settings: Settings, name: str, config: ServerConfig) -> int:
    async with open_services(settings, find_database(settings)) as services:
        return (await services.registry.reconfigure(name, config, Actor.local("cli"))).epoch
