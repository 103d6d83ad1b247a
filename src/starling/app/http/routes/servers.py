"""The stored MCP servers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field, RootModel

from starling.app.http.dependencies import Admin, ChangeActor, FromServices
from starling.app.http.problems import refusals
from starling.app.http.schemas import ClosedModel
from starling.app.registry.documents import ServerDetails, ServerSummary, ToolSettings

router = APIRouter(prefix="/v1/servers", tags=["registry"], responses=refusals(503))


@dataclass(frozen=True, slots=True)
class ServerList:
    """All servers, by name."""

    servers: Sequence[ServerSummary]


class NewToolSettings(RootModel[dict[str, Any]]):
    """The settings of a tool as under `x-starling.tools`; the closed schema is that of its fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredTool(ToolSettings):
    """The settings of a tool after a change, and the first epoch that has them."""

    epoch: int


class ToolApproval(ClosedModel):
    """The definitions to approve: by tool, the `offered_hash` that was looked at."""

    tools: Annotated[dict[str, Annotated[str, Field(max_length=64)]], Field(min_length=1, max_length=2_000)]


@dataclass(frozen=True, slots=True)
class NewlyApproved:
    """The approved tools, and the first epoch that has them."""

    name: str
    tools: Sequence[str]
    epoch: int


@router.get("", summary="List servers")
async def servers(_: Admin, services: FromServices) -> ServerList:
    """List the MCP servers and their state."""
    return ServerList(await services.server_documents.every())


@router.get("/{name}", summary="Show a server", responses=refusals(404))
async def server(name: str, _: Admin, services: FromServices) -> ServerDetails:
    """Return a server with its configuration and its tools."""
    return await services.server_documents.one(name)


@router.get("/{name}/tools/{tool:path}", summary="Show a tool's settings", responses=refusals(404))
async def tool_settings(name: str, tool: str, _: Admin, services: FromServices) -> ToolSettings:
    """Return the settings of a tool that are in effect, each with its source."""
    return await services.server_documents.tool(name, tool)


@router.put("/{name}/tools/{tool:path}", summary="Configure a tool", responses=refusals(404, 422))
async def configure_tool(
    name: str, tool: str, settings: NewToolSettings, _: Admin, actor: ChangeActor, services: FromServices
) -> ConfiguredTool:
    """Replace the settings of a tool that win over its server's configuration; `{}` removes them.

    Reloads of the server's file keep them.
    """
    report = await services.registry.configure_tool(name, tool, settings.root, actor)
    found = await services.server_documents.tool(name, tool)
    return ConfiguredTool(found.server, found.tool, found.hash, found.settings, found.effective, epoch=report.epoch)


@router.post("/{name}/approve", summary="Approve tools of a server", responses=refusals(404, 409))
async def approve(
    name: str, wanted: ToolApproval, _: Admin, actor: ChangeActor, services: FromServices
) -> NewlyApproved:
    """Approve definitions that a server offers, for runs accepted from now on. 409 if one changed again."""
    report = await services.registry.approve(name, wanted.tools, actor)
    return NewlyApproved(name, sorted(wanted.tools), report.epoch)
