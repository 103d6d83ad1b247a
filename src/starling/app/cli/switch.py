"""`starling switch`: kill switches for servers, agents and tenants."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from starling.app.access.switch_targets import MissingTarget
from starling.app.cli.command_settings import settings_of
from starling.app.cli.signals import run_until_stopped
from starling.app.cli.terminal.moments import moment
from starling.app.cli.terminal.output import print_json, print_line, print_table
from starling.app.container.admin import open_admin
from starling.core.principal import SHARED
from starling.core.settings import Settings
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.kill_switches import Switch, Target

app = typer.Typer(add_completion=False, no_args_is_help=True)

_LISTED: Final = {
    "server": "`starling server list` shows all.",
    "agent": "`starling agent list` shows all, with `--tenant` those of a tenant.",
    "tenant": "`starling key list` shows who has a key.",
}


class Kind(StrEnum):
    """What can be switched off."""

    SERVER = "server"
    AGENT = "agent"
    TENANT = "tenant"


_Kind = Annotated[Kind, typer.Argument(help="What to switch.")]
_Name = Annotated[str, typer.Argument(help="Its name; the tenant * means all tenants.")]
_Tenant = Annotated[str, typer.Option(help="The tenant for which an agent or server is off; default: all.")]
_Utc = Annotated[bool, typer.Option("--utc", help="Show times in UTC instead of the local time zone.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def root() -> None:
    """Manage kill switches: they stop calls of tools in every run."""


@app.command("list")
def list_switches(context: typer.Context, utc: _Utc = False, as_json: _Json = False) -> None:
    """List what is switched off, latest first."""
    found = run_until_stopped(_every(settings_of(context)))
    if as_json:
        print_json([_document(switch) for switch in found])
    elif found:
        print_table(("KIND", "NAME", "TENANT", "SINCE", "BY", "REASON"), [_cells(switch, utc=utc) for switch in found])
    else:
        print_line("Nothing is switched off.")


@app.command()
def off(
    context: typer.Context,
    kind: _Kind,
    name: _Name,
    reason: Annotated[str, typer.Option(help="The reason; callers and models see it.")],
    tenant: _Tenant = SHARED,
    as_json: _Json = False,
) -> None:
    """Stop all tool calls of a server, an agent or a tenant, within two seconds and in every run."""
    switch, missing = run_until_stopped(_off(settings_of(context), Target(kind.value, name, tenant), reason))
    if as_json:
        print_json(_document(switch) | {"known": missing is None})
        return
    print_line(outcome_text(switch.target, "switched off"))
    if missing is not None:
        print_line(f"There is no {missing} now: it will be off if it comes. {_LISTED[missing.kind]}")


@app.command()
def on(context: typer.Context, kind: _Kind, name: _Name, tenant: _Tenant = SHARED, as_json: _Json = False) -> None:
    """Allow tool calls again."""
    target = Target(kind.value, name, tenant)
    run_until_stopped(_on(settings_of(context), target))
    if as_json:
        print_json({"kind": target.kind, "name": target.name, "tenant": target.owner})
    else:
        print_line(outcome_text(target, "switched on again"))


async def _every(settings: Settings) -> Sequence[Switch]:
    async with open_admin(settings) as admin:
        return await admin.switches.every()


async def _off(settings: Settings, target: Target, reason: str) -> tuple[Switch, MissingTarget | None]:
    """Return the switch, and the part of its target that does not exist."""
    async with open_admin(settings) as admin:
        switch = await admin.switches.off(target, reason, Actor.local("cli"))
        return switch, await admin.switch_targets.missing(target)


async def _on(settings: Settings, target: Target) -> None:
    async with open_admin(settings) as admin:
        await admin.switches.on(target, Actor.local("cli"))


def outcome_text(target: Target, what: str) -> str:
    """Return a sentence that says what happened to a target."""
    if target.kind == "tenant" and target.name == SHARED:
        return f"Tool calls of all tenants are {what}."
    return f"The {target} is {what}."


def _document(switch: Switch) -> dict[str, Any]:
    return {
        "kind": switch.target.kind,
        "name": switch.target.name,
        "tenant": switch.target.owner,
        "reason": switch.reason,
        "actor": switch.actor,
        "created_at": switch.created_at.isoformat(),
    }


def _cells(switch: Switch, *, utc: bool) -> tuple[str, ...]:
    since = moment(switch.created_at, utc=utc)
    return switch.target.kind, switch.target.name, switch.target.owner, since, switch.actor, switch.reason
