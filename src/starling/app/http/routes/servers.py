"""The stored MCP servers."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from starling.app.http.dependencies import Admin, FromServices
from starling.app.http.problems import Problem

router = APIRouter(prefix="/v1/servers", tags=["registry"], responses={503: {"model": Problem}})

_SERVER: dict[str, Any] = {
    "name": "time",
    "state": "ready",
    "source": "file",
    "description": "Tells the time in any time zone.",
    "error": "",
    "remedy": "",
}
_TOOL: dict[str, Any] = {
    "name": "get_current_time",
    "effect": "read",
    "description": "Return the time in a zone.",
    "hash": "9b3f0d3c7f0b1f0e6b1f0e9d4f7c2a51c8e3d6b7a4f5e2d1c0b9a8f7e6d5c4b3",
}
_DETAILS: dict[str, Any] = _SERVER | {"config": {"command": "mcp-server-time"}, "tools": [_TOOL]}


class ListedServer(BaseModel):
    """A server at its last listing; `tools` is the number of its tools."""

    name: str
    state: str
    tools: int
    source: str
    description: str
    error: str
    remedy: str


class ListedServers(BaseModel):
    """All servers, by name."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"servers": [_SERVER | {"tools": 2}]}]})

    servers: list[ListedServer]


class ServerTool(BaseModel):
    """A tool of a server: its effect, and the hash of its definition."""

    name: str
    effect: str
    description: str
    hash: str


class ServerDetails(BaseModel):
    """A server with its configuration, as written, and its tools."""

    model_config = ConfigDict(json_schema_extra={"examples": [_DETAILS]})

    name: str
    state: str
    source: str
    description: str
    error: str
    remedy: str
    config: dict[str, Any]
    tools: list[ServerTool]


@router.get("", summary="List servers")
async def servers(_: Admin, services: FromServices) -> ListedServers:
    """List the MCP servers and their state."""
    return ListedServers(servers=[ListedServer(**found) for found in await services.server_documents.every()])


@router.get("/{name}", summary="Show a server", responses={404: {"model": Problem}})
async def server(name: str, _: Admin, services: FromServices) -> ServerDetails:
    """Return a server with its configuration and its tools."""
    return ServerDetails.model_validate(await services.server_documents.one(name))
