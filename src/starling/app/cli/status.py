"""`starling status`: what runs on this data folder, and how it stands."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import typer

from starling.app.access.local_token import read_token
from starling.app.access.port_file import RunningPlatform, find_platform
from starling.app.cli.options import Json
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.terminal.output import print_fields, print_line, print_result
from starling.client.api import Api
from starling.core.errors import ForbiddenError, InvalidRequestError, StarlingError
from starling.core.principal import DEFAULT_TENANT
from starling.core.settings.client import EMBEDDED, ClientSettings

app = typer.Typer(add_completion=False)

NOT_RUNNING: Final = 3  # the exit code
_UNFINISHED: Final = ("running", "waiting", "queued")
_MOST: Final = 200  # runs of a status that are counted


@dataclass(frozen=True, slots=True)
class Status:
    """A platform as a command sees it; what it doesn't tell without a key is None.

    `runs` counts the unfinished runs of one tenant by status, up to 200 of each: that of the key, `default` without
    one. `reason` says why it isn't ready.
    """

    running: bool
    ready: bool = False
    reason: str = ""
    address: str | None = None
    version: str | None = None
    pid: int | None = None
    epoch: int | None = None
    database: str | None = None
    data_dir: str = ""
    servers: Mapping[str, Any] | None = None
    runs: Mapping[str, int] | None = None


@app.command()
def status(context: typer.Context, as_json: Json = False) -> None:
    """Show whether Starling runs on this data folder: address, version, database, servers and unfinished runs.

    Looks at the address in STARLING_URL where none runs here. Exits with 0 if it is ready, with 3 otherwise.
    """
    settings = connection_of(context).settings
    here = find_platform(settings.data_dir)
    found = _look(settings, here)
    by_key = settings.api_key and not (here and here.keyless)
    whose = "the tenant of your key" if by_key else f"the tenant {DEFAULT_TENANT}"
    print_result(asdict(found), lambda: _print(found, whose), as_json=as_json)
    if not found.ready:
        raise typer.Exit(NOT_RUNNING)


def _look(settings: ClientSettings, here: RunningPlatform | None) -> Status:
    folder = str(settings.data_dir)
    if here is None and not settings.url:
        return Status(running=False, data_dir=folder)
    key = read_token(settings.data_dir) if here and here.keyless else settings.api_key
    address = here.address if here else settings.url
    known: dict[str, Any] = {"address": address, "data_dir": folder}
    if here is not None:
        database = here.database if here.database == EMBEDDED else "DATABASE_URL"
        known |= {"version": here.version, "pid": here.pid, "database": database}
    try:
        api = Api(address, key)
        ready = api.get("/ready")
    except StarlingError as error:
        return Status(running=here is not None, reason=str(error), **known)
    runs = _counted(api) if key or here is None or here.keyless else None
    degraded = [server["name"] for server in ready["servers"] if server["state"] == "degraded"]
    servers = {"ready": len(ready["servers"]) - len(degraded), "degraded": degraded} if runs is not None else None
    return Status(running=True, ready=True, epoch=ready["epoch"], servers=servers, runs=runs, **known)


def _counted(api: Api) -> Mapping[str, int] | None:
    """Return the number of unfinished runs by status, None where the API needs another key."""
    try:
        return {name: len(api.get("/v1/runs", status=name, limit=_MOST)["runs"]) for name in _UNFINISHED}
    except (InvalidRequestError, ForbiddenError):
        return None


def _print(found: Status, whose: str) -> None:
    if not found.running and found.address is None:
        print_line(f"Starling does not run on {found.data_dir}. `starling up` starts it.")
        return
    state = "runs" if found.ready else "is not ready"
    print_line(f"Starling {f'{found.version} ' if found.version else ''}{state} at {found.address}", "bold")
    database = f"Postgres of {found.database}" if found.database else ""
    fields = {
        "reason": found.reason,
        "process": str(found.pid or ""),
        "database": f"embedded Postgres in {found.data_dir}" if found.database == EMBEDDED else database,
        "epoch": str(found.epoch or ""),
        "servers": "",
        "runs": "",
    }
    if found.servers is not None:
        degraded = ", ".join(found.servers["degraded"])
        why = f", degraded: {degraded} (`starling server list` says why)" if degraded else ""
        fields["servers"] = f"{found.servers['ready']} ready{why}"
    if found.runs is not None:
        counted = [f"{'at least ' if n == _MOST else ''}{n} {name}" for name, n in found.runs.items() if n]
        fields["runs"] = f"{', '.join(counted) or 'none is running or waiting'}, of {whose}"
    print_fields(fields, 8, indent="  ")
    if found.ready and found.runs is None:
        print_line("Servers and runs are shown with a key: set STARLING_API_KEY.")
