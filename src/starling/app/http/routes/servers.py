"""The stored MCP servers."""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, RootModel

from starling.app.http.breaker_body import BREAKER, ServerBreaker
from starling.app.http.dependencies import Admin, FromServices
from starling.app.http.problems import Problem
from starling.infra.postgres.audit import Actor

router = APIRouter(prefix="/v1/servers", tags=["registry"], responses={503: {"model": Problem}})

_SERVER: dict[str, Any] = {
    "name": "time",
    "state": "ready",
    "source": "file",
    "description": "Tells the time in any time zone.",
    "error": "",
    "remedy": "",
    "quarantined": {"convert_time": "Its definition was changed by its server: description."},
    "isolation": "mount_namespace",
    "breakers": [BREAKER],
}
_TOOL: dict[str, Any] = {
    "name": "get_current_time",
    "effect": "read",
    "description": "Return the time in a zone.",
    "hash": "9b3f0d3c7f0b1f0e6b1f0e9d4f7c2a51c8e3d6b7a4f5e2d1c0b9a8f7e6d5c4b3",
    "settings": {"cache_ttl": 30.0},
}
_SETTINGS: dict[str, Any] = {
    "server": "time",
    "tool": "get_current_time",
    "hash": _TOOL["hash"],
    "settings": {"cache_ttl": 30.0},
    "effective": {
        "effect": {"value": "read", "source": "configuration"},
        "cache_ttl": {"value": 30.0, "source": "tool_settings"},
    },
}
_OFFERED = "4f1c2a51c8e3d6b7a4f5e2d1c0b9a8f7e6d5c4b39b3f0d3c7f0b1f0e6b1f0e9d"
_PIN: dict[str, Any] = {
    "tool": "convert_time",
    "state": "quarantined",
    "reason": "Its definition was changed by its server: description.",
    "by": "file",
    "seen_at": "2026-11-20T11:12:01.250000Z",
    "approved_hash": "9b3f0d3c7f0b1f0e6b1f0e9d4f7c2a51c8e3d6b7a4f5e2d1c0b9a8f7e6d5c4b3",
    "offered_hash": _OFFERED,
    "diff": '--- approved\n+++ offered\n@@ -1 +1 @@\n-  "description": "Convert."\n+  "description": "Convert!"',
}
_DETAILS: dict[str, Any] = _SERVER | {"config": {"command": "mcp-server-time"}, "tools": [_TOOL], "pins": [_PIN]}


class ListedServer(BaseModel):
    """A server at its last listing; `tools` is the number of its tools in use.

    `quarantined` are tools that are offered to nobody until they are approved, with the reasons. `isolation` is what
    keeps a stdio server from the platform's files on the machine that answers. `breakers` are the processes that make
    no calls of it now, because it failed there several times in a row.
    """

    name: str
    state: str
    tools: int
    source: str
    description: str
    error: str
    remedy: str
    quarantined: dict[str, str] = {}
    isolation: Literal["own_user", "mount_namespace", "none"] | None = None
    breakers: list[ServerBreaker] = []


class ListedServers(BaseModel):
    """All servers, by name."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"servers": [_SERVER | {"tools": 2}]}]})

    servers: list[ListedServer]


class ServerTool(BaseModel):
    """A tool of a server: its effect, the hash of its definition, and the settings that were set for it by itself."""

    name: str
    effect: str
    description: str
    hash: str
    settings: dict[str, Any] = {}


class EffectiveValue(BaseModel):
    """A value in effect and its source.

    `tool_settings`: set for the tool by itself, which wins; `configuration`: that of its server; `listing`: the server
    said so; `default`: nothing was set, and for `timeout` and `approval` the settings of the platform hold.
    """

    value: Any
    source: Literal["tool_settings", "configuration", "listing", "default"]


class ToolSettings(BaseModel):
    """The settings of a tool: those that were set for it by itself, and all that are in effect, by name."""

    model_config = ConfigDict(json_schema_extra={"examples": [_SETTINGS]})

    server: str
    tool: str
    hash: str
    settings: dict[str, Any]
    effective: dict[str, EffectiveValue]


class NewToolSettings(RootModel[dict[str, Any]]):
    """The settings of a tool as under `x-starling.tools`; the closed schema is that of its fields."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"timeout": 10, "approval": "always"}]})


class ConfiguredTool(ToolSettings):
    """The settings of a tool after a change, and the first epoch that has them."""

    model_config = ConfigDict(json_schema_extra={"examples": [_SETTINGS | {"epoch": 5}]})

    epoch: int


class ToolPin(BaseModel):
    """A tool that isn't plainly approved: `quarantined`, `gone`, or `approved` by the server's policy alone.

    `diff` compares the approved definition with the offered one. `by` made its state so: `file`, `host`, `policy`,
    `migration`, or the id of a key.
    """

    tool: str
    state: Literal["approved", "quarantined", "gone"]
    reason: str
    by: str
    seen_at: datetime
    approved_hash: str | None
    offered_hash: str | None
    diff: str


class Approval(BaseModel):
    """The definitions to approve: by tool, the `offered_hash` that was looked at."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, json_schema_extra={"examples": [{"tools": {"convert_time": _OFFERED}}]}
    )

    tools: Annotated[dict[str, Annotated[str, Field(max_length=64)]], Field(min_length=1, max_length=2_000)]


class ApprovedTools(BaseModel):
    """The approved tools, and the first epoch that has them."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "time", "tools": ["convert_time"], "epoch": 5}]})

    name: str
    tools: list[str]
    epoch: int


class ServerDetails(BaseModel):
    """A server with its configuration, as written, and its tools."""

    model_config = ConfigDict(json_schema_extra={"examples": [_DETAILS]})

    name: str
    state: str
    source: str
    description: str
    error: str
    remedy: str
    quarantined: dict[str, str] = {}
    isolation: Literal["own_user", "mount_namespace", "none"] | None = None
    breakers: list[ServerBreaker] = []
    config: dict[str, Any]
    tools: list[ServerTool]
    pins: list[ToolPin] = []


@router.get("", summary="List servers")
async def servers(_: Admin, services: FromServices) -> ListedServers:
    """List the MCP servers and their state."""
    return ListedServers(servers=[ListedServer(**found) for found in await services.server_documents.every()])


@router.get("/{name}", summary="Show a server", responses={404: {"model": Problem}})
async def server(name: str, _: Admin, services: FromServices) -> ServerDetails:
    """Return a server with its configuration and its tools."""
    return ServerDetails.model_validate(await services.server_documents.one(name))


@router.get("/{name}/tools/{tool:path}", summary="Show a tool's settings", responses={404: {"model": Problem}})
async def tool_settings(name: str, tool: str, _: Admin, services: FromServices) -> ToolSettings:
    """Return the settings of a tool that are in effect, each with its source."""
    return ToolSettings.model_validate(await services.server_documents.tool(name, tool))


@router.put(
    "/{name}/tools/{tool:path}",
    summary="Configure a tool",
    responses={404: {"model": Problem}, 422: {"model": Problem}},
)
async def configure_tool(
    name: str, tool: str, settings: NewToolSettings, request: Request, caller: Admin, services: FromServices
) -> ConfiguredTool:
    """Replace the settings of a tool that win over its server's configuration; `{}` removes them.

    Reloads of the server's file keep them.
    """
    actor = Actor.caller(caller, request.client.host if request.client else "")
    report = await services.registry.configure_tool(name, tool, settings.root, actor)
    found = await services.server_documents.tool(name, tool)
    return ConfiguredTool.model_validate({**found, "epoch": report.epoch})


@router.post(
    "/{name}/approve",
    summary="Approve tools of a server",
    responses={404: {"model": Problem}, 409: {"model": Problem}},
)
async def approve(
    name: str, wanted: Approval, request: Request, caller: Admin, services: FromServices
) -> ApprovedTools:
    """Approve definitions that a server offers, for runs accepted from now on. 409 if one changed again."""
    actor = Actor.caller(caller, request.client.host if request.client else "")
    report = await services.registry.approve(name, wanted.tools, actor)
    return ApprovedTools(name=name, tools=sorted(wanted.tools), epoch=report.epoch)
