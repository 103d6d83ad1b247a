"""`starling key`: create, list and revoke API keys."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, Final

import typer

from starling.app.cli.id_name import ending_in, find_id
from starling.app.cli.options import Full, Json, OneTenant, Utc
from starling.app.cli.platform.command_settings import settings_of
from starling.app.cli.signals import run_with
from starling.app.cli.terminal.formats import moment, parse_duration, short_ids
from starling.app.cli.terminal.output import diagnostics, print_json, print_line, print_list, print_result, write
from starling.app.container.database import find_database
from starling.app.container.storage import open_storage
from starling.app.storage import Storage
from starling.core.principal import DEFAULT_TENANT, HOST_ADMIN, Grant, Scope
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.keys import ApiKey, KeySpec

app = typer.Typer(add_completion=False, no_args_is_help=True)

_REMEDY: Final = "`starling key list` shows the ids."
_COLUMNS = ("KEY", "TENANT", "NAME", "STATE", "SCOPES", "REACHES", "EXPIRES", "LAST USED")


@app.callback()
def root() -> None:
    """Manage API keys."""


@app.command()
def create(  # noqa: PLR0913, PLR0917 - one for each option
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A name for the key, for example of its user.")],
    tenant: Annotated[str, typer.Option(help="The tenant of the key.")] = DEFAULT_TENANT,
    scope: Annotated[list[Scope] | None, typer.Option(help="What it permits; may be repeated. Default: run.")] = None,
    server: Annotated[
        list[str] | None, typer.Option(help="A server that its runs may call; may be repeated. Default: all.")
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(metavar="SERVER.TOOL", help="A single tool that its runs may call; may be repeated."),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="Lifetime, such as 12h, 30d or 8w. Default: it never expires.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Create a key and print it, alone on standard output. It cannot be shown again."""
    grant = Grant(frozenset(server or ()), frozenset(tool or ())) if server or tool else None
    lifetime = parse_duration(expires) if expires is not None else None
    spec = KeySpec(name, tenant, frozenset(scope or [Scope.RUN]), grant, lifetime)
    settings = settings_of(context)

    async def store(storage: Storage) -> tuple[ApiKey, str, Sequence[str]]:
        row, key = await storage.keys.create(HOST_ADMIN, spec, Actor.local("cli"))
        if grant is None:
            return row, key, ()
        tools = {row.name: {f"{row.name}.{tool}" for tool in row.tools} for row in await storage.servers.servers()}
        return row, key, sorted((grant.servers - tools.keys()) | grant.tools.difference(*tools.values()))

    row, key, unknown = run_with(open_storage(settings, find_database(settings)), store)
    if unknown:
        write(diagnostics(), f"Not there now, and reached once they are: {', '.join(unknown)}.\n", "yellow")
    if as_json:
        print_json(asdict(row) | {"key": key})
        return
    print_line(key)
    write(diagnostics(), f"This is {row.name}'s key, for the tenant {row.tenant}. Keep it: it can't be shown again.\n")
    write(diagnostics(), f"`starling key revoke {row.id}` ends it.\n")


@app.command("list")
def list_keys(
    context: typer.Context, tenant: OneTenant = None, full: Full = False, utc: Utc = False, as_json: Json = False
) -> None:
    """List keys, oldest first, also revoked and expired ones."""
    settings = settings_of(context)
    database = find_database(settings)
    rows = run_with(open_storage(settings, database), lambda storage: storage.keys.every(HOST_ADMIN, tenant))
    ids = [row.id for row in rows]
    shown = dict(zip(ids, ids if full else short_ids(ids), strict=True))

    def cells(row: ApiKey) -> tuple[str, ...]:
        reaches = ", ".join([*row.grant["servers"], *row.grant["tools"]]) if row.grant else "everything"
        times = [moment(each, utc=utc) if each else "never" for each in (row.expires_at, row.last_used_at)]
        return shown[row.id], row.tenant, row.name, row.state, ", ".join(row.scopes), reaches, *times

    empty = "There are no keys. `starling key create NAME` makes one."
    print_list(rows, _COLUMNS, cells, empty=empty, as_json=as_json, document=asdict)


@app.command()
def revoke(
    context: typer.Context,
    key: Annotated[str, typer.Argument(metavar="ID", help="The key's id, or at least 4 characters of its end.")],
    as_json: Json = False,
) -> None:
    """Revoke a key: new calls are refused, and its open streams end within seconds."""
    settings = settings_of(context)

    async def end(storage: Storage) -> ApiKey:
        ids = [row.id for row in await storage.keys.every(HOST_ADMIN)]
        found = find_id("key", key, partial(ending_in, ids), remedy=_REMEDY)
        return await storage.keys.revoke(HOST_ADMIN, found, Actor.local("cli"))

    row = run_with(open_storage(settings, find_database(settings)), end)
    print_result(asdict(row), f"{row.name}'s key {row.id} is revoked.", as_json=as_json)
