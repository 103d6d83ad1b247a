"""Liveness and readiness of the process."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fastapi import APIRouter

from mcp_gateway.configuration.servers import server_of
from mcp_gateway.registration.repository import ServerRepository
from starling.app.http.app_state import FromAppState, OptionalCaller
from starling.app.http.problems import refusals
from starling.core.errors import DrainingError
from starling.core.principal import Principal, Scope
from starling.infra.postgres.server_breakers import StoredBreaker

router = APIRouter(tags=["health"])
_TOLD_OF_SERVERS = {Scope.ADMIN, Scope.SERVERS}


@dataclass(frozen=True, slots=True)
class Health:
    """The process answers."""

    status: Literal["ok"] = "ok"


@dataclass(frozen=True, slots=True)
class ServerHealth:
    """A server at its last listing, and the processes whose calls of it fail at once now."""

    name: str
    state: Literal["ready", "degraded"]
    tools: int
    error: str
    remedy: str
    breakers: Sequence[StoredBreaker]


@dataclass(frozen=True, slots=True)
class Readiness:
    """Postgres answers and takes writes. `servers`: what the key may see; degraded or failing ones change nothing."""

    epoch: int | None
    servers: Sequence[ServerHealth]
    status: Literal["ready"] = "ready"


@router.get("/health", summary="Liveness")
async def health(_: OptionalCaller) -> Health:
    """Answer without a query."""
    return Health()


@router.get("/ready", summary="Readiness", responses=refusals(503))
async def ready(api: FromAppState, caller: OptionalCaller) -> Readiness:
    """Query Postgres, and check that it takes writes.

    `servers` lists all servers for scope `admin`, and those of the tenant for scope `servers`. 503 while Postgres is
    unavailable or takes no writes, and once the process is stopping (`draining`).
    """
    if api.draining:
        raise DrainingError("This process is being stopped.", "Send requests to another one.")
    storage = api.storage
    await storage.writes.check()
    servers = await _servers(storage.servers, caller) if caller and caller.scopes & _TOLD_OF_SERVERS else []
    return Readiness(epoch=await storage.epochs.active_number(), servers=servers)


async def _servers(servers: ServerRepository, caller: Principal) -> list[ServerHealth]:
    breakers = await servers.breakers.by_server()
    return [
        ServerHealth(row.name, row.state, len(row.tools), row.error, row.remedy, breakers.get(row.name, ()))
        for row in await servers.servers()
        if Scope.ADMIN in caller.scopes or caller.tenant in (server_of(row.config).options.tenants or {caller.tenant})
    ]
