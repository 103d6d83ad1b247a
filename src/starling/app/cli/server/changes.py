"""`starling server add`, `enable`, `remove` and `test`."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import typer

from mcp_gateway.configuration.effect_suggestions import suggested_effects, with_effects
from mcp_gateway.configuration.servers import ServerConfig, checked_server
from mcp_gateway.registration.discovery import Listed, try_servers
from mcp_gateway.registration.listing_schedule import start_seconds
from starling.app.cli.completion import Server
from starling.app.cli.options import Json, Yes, split_pairs
from starling.app.cli.platform.command_settings import settings_of, with_servers_found_here
from starling.app.cli.platform.settings_file import MCP_FILE
from starling.app.cli.server.effects import FileEdit, applied, confirmed_effects, documents_of
from starling.app.cli.signals import run_until_stopped, run_with
from starling.app.cli.terminal.output import print_json, print_line, print_result, progress
from starling.app.container.configuration import private_files
from starling.app.container.database import find_database
from starling.app.container.services import open_services
from starling.core.errors import DatabaseUnavailableError, ServerUnavailableError
from starling.core.settings.schema import Settings, environment
from starling.core.tool_calls import Effect
from starling.infra.postgres.audit import Actor

app = typer.Typer(add_completion=False)


@app.command()
def add(  # noqa: PLR0913, PLR0917 - its options
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The name of the server; its specialist is mcp_agent_NAME.")],
    target: Annotated[list[str], typer.Argument(help="Its URL, or after -- its command with arguments.")],
    values: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="An environment variable of its process, or a header for its URL; ${VAR} is expanded at use.",
        ),
    ] = None,
    effect: Annotated[
        Effect | None, typer.Option(help="What its tools may change; without it, its annotations are proposed.")
    ] = None,
    description: Annotated[
        str | None, typer.Option(help="What its specialist is for; default: what the server or its tools say.")
    ] = None,
    approval: Annotated[
        Literal["never", "unsafe", "always"] | None,
        typer.Option(help="Which of its calls need approval; default: the setting `approval`."),
    ] = None,
    timeout: Annotated[float | None, typer.Option(help="The longest time of one call, in seconds.")] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Add a server and its specialist agent: runs accepted from now on can use it.

    Nothing is stored if the server can't be started or its tools can't be listed. Without --effect, a tool is `unsafe`
    unless you confirm the effect that the server's own annotations propose.
    """
    settings = settings_of(context)
    given = {"effect": effect, "description": description, "approval": approval, "timeout": timeout}
    pairs = split_pairs(values or (), "--set KEY=VALUE")
    config = _config(name, target, pairs, {key: one for key, one in given.items() if one is not None})
    listed = _tried(settings, name, config)
    proposed = [] if effect else suggested_effects(listed.tools, config.options)
    chosen = confirmed_effects(name, proposed, yes=yes, quiet=as_json)
    listing, report = run_with(
        open_services(settings, find_database(settings)),
        lambda services: services.registry.add(name, with_effects(config, chosen), Actor.local("cli"), listed),
    )
    tools = [tool.name for tool in listing.tools]
    document = {"name": name, "tools": tools, "epoch": report.epoch, "proposed": documents_of(proposed)}
    text = f"{name} is in epoch {report.epoch}, with {len(tools)} tools: {', '.join(tools)}."
    print_result(document, text, as_json=as_json)


@app.command()
def enable(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The name of a server of the mcpServers file.")],
    as_json: Json = False,
) -> None:
    """Enable a server that the mcpServers file has as `disabled`: its tools are listed, and the file is changed.

    The file keeps its comments and its layout. Where a platform runs, runs accepted from now on can use the server.
    Nothing is changed if the server can't be started or its tools can't be listed.
    """
    settings = with_servers_found_here(settings_of(context))
    edit = FileEdit.enabling(settings.mcp_config or MCP_FILE, name)
    tools = [*_tried(settings, name, edit.config[name]).tools]
    try:
        epoch = applied(settings, edit, name)
    except DatabaseUnavailableError:  # nothing runs
        epoch = None
        edit.write()
    where = f"in epoch {epoch}" if epoch else f"enabled in {edit.file}"
    text = f"{name} is {where}, with {len(tools)} tools: {', '.join(tools)}."
    print_result({"name": name, "tools": tools, "epoch": epoch}, text, as_json=as_json)


@app.command()
def remove(context: typer.Context, name: Server, as_json: Json = False) -> None:
    """Remove a server and its specialist agent. A server of a file comes back when the file is read again."""
    settings = settings_of(context)
    report = run_with(
        open_services(settings, find_database(settings)),
        lambda services: services.registry.remove(name, Actor.local("cli")),
    )
    epoch = report.epoch
    print_result({"name": name, "epoch": epoch}, f"{name} is removed from epoch {epoch} on.", as_json=as_json)


@app.command("test")
def try_out(context: typer.Context, name: Server, as_json: Json = False) -> None:
    """Start a server, list its tools and compare them with the stored ones, without changing anything."""
    with progress(f"Starting {name} …"):
        settings = settings_of(context)
        services = open_services(settings, find_database(settings))
        trial = run_with(services, lambda opened: opened.registry.probe(name))
    differences = {"new": trial.new, "gone": trial.gone, "changed": trial.changed, "left_out": trial.left_out}
    if as_json:
        print_json({"name": name, "seconds": round(trial.seconds, 3), **differences, "tools": trial.tools})
        return
    print_line(f"{name} answered with {len(trial.tools)} tools in {trial.seconds:.1f} s: {', '.join(trial.tools)}.")
    for what, tools in differences.items():
        if tools:
            print_line(f"  {what.replace('_', ' ')}: {', '.join(tools)}", "yellow")


def _tried(settings: Settings, name: str, config: ServerConfig) -> Listed:
    with progress(f"Listing {name}, for up to {start_seconds(config, settings.limits):g} s …"):
        trial = try_servers({name: config}, settings.limits, environment(), private_files(settings))
        listed = run_until_stopped(trial)[name]
    if isinstance(listed, ServerUnavailableError):
        raise listed
    return listed


def _config(name: str, target: Sequence[str], values: dict[str, str], options: dict[str, Any]) -> ServerConfig:
    document: dict[str, Any] = {"x-starling": options}
    if len(target) == 1 and "://" in target[0]:
        document |= {"url": target[0], "headers": values}
    else:
        document |= {"command": target[0], "args": list(target[1:]), "env": values}
    return checked_server(name, document)
