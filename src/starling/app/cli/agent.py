"""`starling agent`: create, list, show and archive custom agents."""

import json
from collections.abc import Mapping
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any, Final

import typer

from starling.app.cli.completion import AGENTS
from starling.app.cli.options import Best, Json, Tenant
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.terminal.formats import moment
from starling.app.cli.terminal.output import print_fields, print_json, print_line, print_list, print_result, print_table
from starling.client.api import Document, path_of
from starling.core.errors import InvalidRequestError
from starling.core.principal import DEFAULT_TENANT

app = typer.Typer(add_completion=False, no_args_is_help=True)

_PATH: Final = "/v1/agents"
_DESCRIPTION_CHARS = 100
_HASH_CHARS = 12

_Name = Annotated[str, typer.Argument(help="The agent.", autocompletion=AGENTS)]


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
        str | None,
        typer.Option(
            help="Its view of the conversation: last_messages, none, summary, full, last_n or tools_collapsed."
        ),
    ] = None,
    reviewer: Annotated[str | None, typer.Option(help="The custom agent that reviews its results.")] = None,
    tenant: Tenant = DEFAULT_TENANT,
    as_json: Json = False,
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
    config = (_read(file) if file else {}) | {field: value for field, value in given.items() if value is not None}
    made = connection_of(context).api(tenant).post(_PATH, config)
    text = f"{made['name']} is in epoch {made['epoch']}, as version {made['version'][:_HASH_CHARS]}."
    print_result(made, text, as_json=as_json)


@app.command("list")
def list_agents(context: typer.Context, tenant: Tenant = DEFAULT_TENANT, as_json: Json = False) -> None:
    """List all agents that runs can use now: specialists, built-in and custom agents."""

    def cells(agent: Document) -> tuple[str, ...]:
        said = agent["reason"] or shorten(agent["description"], _DESCRIPTION_CHARS, placeholder=" …")
        return agent["name"], agent["kind"], agent["state"], str(len(agent["tools"])), said

    found = connection_of(context).api(tenant).get(_PATH)["agents"]
    empty = "There are no agents yet. `starling up` makes the first epoch."
    print_list(found, ("NAME", "KIND", "STATE", "TOOLS", "DESCRIPTION"), cells, empty=empty, as_json=as_json)


@app.command()
def find(
    context: typer.Context,
    text: Annotated[str, typer.Argument(help="What an agent is needed for.")],
    limit: Best = 12,
    tenant: Tenant = DEFAULT_TENANT,
    as_json: Json = False,
) -> None:
    """Find the agents that fit a text best, with the parts of their scores."""
    found = connection_of(context).api(tenant).get(_PATH, query=text, limit=limit)
    if as_json:
        print_json(found)
        return
    if found["warning"]:
        typer.echo(f"warning: {found['warning']}", err=True)
    print_line(f"{len(found['agents'])} of {found['total']} agents")
    if found["agents"]:
        rows = [(one["name"], f"{one['score']:.2f}", one["tool"], _parts_text(one["parts"])) for one in found["agents"]]
        print_table(("NAME", "SCORE", "BEST TOOL", "PARTS: CARD / BEST TOOL"), rows)


@app.command()
def show(context: typer.Context, name: _Name, tenant: Tenant = DEFAULT_TENANT, as_json: Json = False) -> None:
    """Show one agent, the verdicts on its results, and the versions of a custom agent."""
    found = connection_of(context).api(tenant).get(path_of("agents", name))
    if as_json:
        print_json(found)
        return
    agent = found["agent"]
    fields = {field: agent[field] for field in ("name", "kind", "state", "reason", "description")}
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in found["verdicts"].items())
    print_fields(fields | {"tools": ", ".join(agent["tools"]), "verdicts": verdicts}, 12)
    for version in found["versions"]:
        active = ", active" if version["active"] else ""
        print_line(f"\nversion {version['version'][:_HASH_CHARS]} of {moment(version['created_at'])}{active}")
        print_json({field: value for field, value in version["config"].items() if value and field != "type"})


@app.command()
def archive(context: typer.Context, name: _Name, tenant: Tenant = DEFAULT_TENANT, as_json: Json = False) -> None:
    """Archive a custom agent: runs accepted from now on don't have it. Its versions are kept."""
    gone = connection_of(context).api(tenant).delete(path_of("agents", name)).json()
    print_result(gone, f"{gone['name']} is archived from epoch {gone['epoch']} on.", as_json=as_json)


def _parts_text(parts: Mapping[str, float]) -> str:
    """Return the parts of a score, `words 1.10 / 1.06`, from those of the card and of the best tool."""
    scores: dict[str, list[str]] = {}
    for name, score in parts.items():
        scores.setdefault(name.rpartition("_")[0] or name, []).append(f"{score:.2f}")
    return ", ".join(f"{name} {' / '.join(both)}" for name, both in scores.items())


def _read(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidRequestError(f"{file} can't be read: {error}.", "Give a JSON file.") from None
    if not isinstance(document, dict):
        raise InvalidRequestError(f"{file} does not contain a JSON object.", 'Write {"id": …, "behavior_template": …}.')
    return document  # pyright: ignore[reportUnknownVariableType]
