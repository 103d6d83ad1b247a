"""`starling switch`: kill switches for servers, agents and tenants."""

from typing import Annotated, Final, Literal

import typer

from starling.app.cli.options import Json, Reason, Utc
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.terminal.formats import moment
from starling.app.cli.terminal.output import print_line, print_list, print_result
from starling.client.api import Document
from starling.core.principal import SHARED

app = typer.Typer(add_completion=False, no_args_is_help=True)

_PATH: Final = "/v1/switches"
_LISTED: Final = {
    "server": "`starling server list` shows all.",
    "agent": "`starling agent list` shows all, with `--tenant` those of a tenant.",
    "tenant": "`starling key list` shows who has a key.",
}
_Kind = Annotated[Literal["server", "agent", "tenant"], typer.Argument(help="What to switch.")]
_Name = Annotated[str, typer.Argument(help="Its name; the tenant * means all tenants.")]
_Owner = Annotated[str, typer.Option("--tenant", help="The tenant for which an agent or server is off; default: all.")]


@app.callback()
def root() -> None:
    """Manage kill switches: they stop calls of tools in every run."""


@app.command("list")
def list_switches(context: typer.Context, utc: Utc = False, as_json: Json = False) -> None:
    """List what is switched off, latest first."""

    def cells(switch: Document) -> tuple[str, ...]:
        since = moment(switch["created_at"], utc=utc)
        return switch["kind"], switch["name"], switch["tenant"], since, switch["actor"], switch["reason"]

    found = connection_of(context).api().get(_PATH)["switches"]
    columns = ("KIND", "NAME", "TENANT", "SINCE", "BY", "REASON")
    print_list(found, columns, cells, empty="Nothing is switched off.", as_json=as_json)


@app.command()
def off(
    context: typer.Context, kind: _Kind, name: _Name, reason: Reason, tenant: _Owner = SHARED, as_json: Json = False
) -> None:
    """Stop all tool calls of a server, an agent or a tenant, within two seconds and in every run."""
    body = {"kind": kind, "name": name, "tenant": tenant, "reason": reason}
    switch = connection_of(context).api().put(_PATH, body)
    missing = switch.pop("missing")
    print_result(switch, outcome_text(kind, name, tenant, "switched off"), as_json=as_json)
    if missing is not None and not as_json:
        whose = "" if missing["tenant"] == SHARED else f" for tenant {missing['tenant']!r}"
        print_line(
            f"There is no {missing['kind']} {missing['name']!r}{whose} now: it will be off if it comes. "
            f"{_LISTED[missing['kind']]}"
        )


@app.command()
def on(context: typer.Context, kind: _Kind, name: _Name, tenant: _Owner = SHARED, as_json: Json = False) -> None:
    """Allow tool calls again."""
    connection_of(context).api().delete(_PATH, kind=kind, name=name, tenant=tenant)
    switched = {"kind": kind, "name": name, "tenant": name if kind == "tenant" else tenant}
    print_result(switched, outcome_text(kind, name, tenant, "switched on again"), as_json=as_json)


def outcome_text(kind: str, name: str, tenant: str, what: str) -> str:
    """Return a sentence that says what happened to a target."""
    if kind == "tenant" and name == SHARED:
        return f"Tool calls of all tenants are {what}."
    whose = "" if kind == "tenant" or tenant == SHARED else f" of tenant {tenant}"
    return f"The {kind} {name}{whose} is {what}."
