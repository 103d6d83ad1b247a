"""Whether the process lives, and whether it can take work."""

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from starling.app.http.api import FromStore
from starling.app.http.problems import Problem

router = APIRouter(tags=["health"])


class Health(BaseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"


class ServerHealth(BaseModel):
    """A server as it was last listed."""

    name: str
    state: Literal["ready", "degraded"]
    tools: int
    error: str
    remedy: str


class Readiness(BaseModel):
    """Postgres answers. Degraded servers are named; they don't make the platform unready."""

    status: Literal["ready"] = "ready"
    epoch: int | None
    servers: list[ServerHealth]


@router.get("/health", summary="Does the process live?")
async def health() -> Health:
    """Answer without touching anything."""
    return Health()


@router.get("/ready", summary="Can it take work?", responses={503: {"model": Problem}})
async def ready(store: FromStore) -> Readiness:
    """Ask Postgres, and say which servers are degraded and why. 503 while Postgres is away."""
    servers = [
        ServerHealth(name=row.name, state=row.state, tools=len(row.tools), error=row.error, remedy=row.remedy)
        for row in await store.servers.servers()
    ]
    return Readiness(epoch=await store.epochs.active_number(), servers=servers)
