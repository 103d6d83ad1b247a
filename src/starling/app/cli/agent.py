"""`starling agent`: create, list, show and archive custom agents."""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from starling.app.cli.command_settings import settings_of
from starling.app.cli.signals import run_until_stopped
from starling.app.cli.terminal.moments import moment
from starling.app.cli.terminal.output import print_json, print_line, print_table
from starling.app.container.admin import open_admin
from starling.app.registry.agents import Agent, AgentMatch, AgentService, Version
from starling.core.agents import LLMAgentConfig
from starling.core.errors import InvalidRequestError
from starling.core.principal import DEFAULT_TENANT, Principal, Scope
from starling.core.settings import Settings
from starling.core.validation_errors import fault_list
from starling.infra.postgres.audit import LOCAL, Actor

app = typer.Typer(add_completion=False, no_args_is_help=True)

_DESCRIPTION_CHARS = 100
_HASH_CHARS = 12

_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Tenant = Annotated[str, typer.Option(help="The tenant of the agents.")]


@app.callback()
def root() -> None:
    """Manage custom agents. Runs that have begun keep the agents that they began with."""


@app.command()
def create(  # noqa: PLR0913, PLR0917 - one for each option
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="A JSON file with its configuration.")] = None,
    name: Annotated[str | None, typer.Option(help="The name of the agent.")] = None,
    behavior: Annotated[str | None, typer.Option(help="The instruction for the agent.")] = None,
    model: Annotated[
        str | None, typer.Option(metavar="PROVIDER:MODEL", help="The model; default: that of its role.")
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(metavar="SERVER.TOOL", help="A tool that it may call, or SERVER.*; may be repeated."),
    ] = None,
    render_policy: Annotated[
        str | None, typer.Option(help="How it sees the conversation: last_messages, none or summary.")
    ] = None,
    reviewer: Annotated[str | None, typer.Option(help="The custom agent that reviews its results.")] = None,
    tenant: _Tenant = DEFAULT_TENANT,
    as_json: _Json = False,
) -> None:
    """Create an agent or a new version of it, from a file, from options, or from both; options win."""
    given = {
        "id": name,
        "behavior_template": behavior,
        "llm_model": model,
        "tools": tool,
        "render_policy": render_policy,
        "reflection_agent_id": reviewer,
    }
    config = _config(file, {field: value for field, value in given.items() if value is not None})
    actor = Actor(tenant, LOCAL, "cli")
    made = _with(context, lambda agents: agents.create(_owner(tenant), config, actor))
    if as_json:
        print_json(asdict(made))
        return
    print_line(f"{made.name} is in epoch {made.epoch}, as version {made.version[:_HASH_CHARS]}.")


@app.command("list")
def list_agents(context: typer.Context, tenant: _Tenant = DEFAULT_TENANT, as_json: _Json = False) -> None:
    """List all agents that runs can use now: specialists, built-in and custom agents."""
    found = _with(context, lambda agents: agents.list(_owner(tenant)))
    if as_json:
        print_json([asdict(agent) for agent in found.agents])
    elif found.agents:
        print_table(("NAME", "KIND", "STATE", "TOOLS", "DESCRIPTION"), [_cells(one) for one in found.agents])
    else:
        print_line("There are no agents yet. `starling up` makes the first epoch.")


@app.command()
def find(
    context: typer.Context,
    text: Annotated[str, typer.Argument(help="What an agent is needed for.")],
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many agents are shown.")] = 12,
    tenant: _Tenant = DEFAULT_TENANT,
    as_json: _Json = False,
) -> None:
    """Find the agents that fit a text best, with the parts of their scores."""
    found = _with(context, lambda agents: agents.find(_owner(tenant), text, limit))
    if as_json:
        print_json(asdict(found))
        return
    if found.warning:
        typer.echo(f"warning: {found.warning}", err=True)
    print_line(f"{len(found.agents)} of {found.total} agents")
    if found.agents:
        names = list(found.agents[0].parts)
        header = ("NAME", "SCORE", *(name.replace("_", " ").upper() for name in names), "BEST TOOL")
        print_table(header, [_score_cells(one, names) for one in found.agents])


@app.command()
def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The agent.")],
    tenant: _Tenant = DEFAULT_TENANT,
    as_json: _Json = False,
) -> None:
    """Show one agent and the versions of a custom agent."""
    found = _with(context, lambda agents: agents.show(_owner(tenant), name))
    if as_json:
        print_json({"agent": asdict(found.agent), "versions": [_document(one) for one in found.versions]})
        return
    for field, value in _fields(found.agent).items():
        if value:
            print_line(f"{field:<12} {value}")
    for version in found.versions:
        print_line(f"\nversion {version.version[:_HASH_CHARS]} of {moment(version.created_at)}"
            f"{', active' if version.active else ''}")  # fmt: skip
        print_json(version.config.model_dump(mode="json", exclude_defaults=True))


@app.command()
def archive(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The agent.")],
    tenant: _Tenant = DEFAULT_TENANT,
    as_json: _Json = False,
) -> None:
    """Archive a custom agent: runs accepted from now on don't have it. Its versions are kept."""
    gone = _with(context, lambda agents: agents.archive(tenant, name, Actor(tenant, LOCAL, "cli")))
    if as_json:
        print_json(asdict(gone))
    else:
        print_line(f"{gone.name} is archived from epoch {gone.epoch} on.")


def _score_cells(match: AgentMatch, parts: Sequence[str]) -> tuple[str, ...]:
    return match.name, f"{match.score:.2f}", *(f"{match.parts[part]:.2f}" for part in parts), match.tool


def _with[T](context: typer.Context, do: Callable[[AgentService], Awaitable[T]]) -> T:
    return run_until_stopped(_done(settings_of(context), do))


async def _done[T](settings: Settings, do: Callable[[AgentService], Awaitable[T]]) -> T:
    async with open_admin(settings) as admin:
        return await do(admin.agents)


def _owner(tenant: str) -> Principal:
    """Return a principal with all scopes: commands on this machine need no key."""
    return Principal(tenant, "", frozenset(Scope))


def _config(file: Path | None, given: dict[str, Any]) -> LLMAgentConfig:
    document = _read(file) if file else {}
    try:
        return LLMAgentConfig.model_validate(document | given)
    except ValidationError as error:
        raise InvalidRequestError(
            f"The agent's configuration is wrong: {fault_list(error)}.", "Nothing was changed."
        ) from None


def _read(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidRequestError(f"{file} can't be read: {error}.", "Give a JSON file.") from None
    if not isinstance(document, dict):
        raise InvalidRequestError(f"{file} does not contain a JSON object.", 'Write {"id": …, "behavior_template": …}.')
    return document  # pyright: ignore[reportUnknownVariableType]


def _document(version: Version) -> dict[str, Any]:
    return {
        "version": version.version,
        "created_at": version.created_at.isoformat().replace("+00:00", "Z"),
        "active": version.active,
        "config": version.config.model_dump(mode="json"),
    }


def _fields(agent: Agent) -> dict[str, str]:
    fields = {field: str(getattr(agent, field)) for field in ("name", "kind", "state", "reason", "description")}
    return fields | {"tools": ", ".join(agent.tools)}


def _cells(agent: Agent) -> tuple[str, ...]:
    said = agent.reason or shorten(agent.description, _DESCRIPTION_CHARS, placeholder=" …")
    return agent.name, agent.kind, agent.state, str(len(agent.tools)), said
