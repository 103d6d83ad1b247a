"""The stored MCP servers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field, RootModel, WithJsonSchema

from mcp_gateway.configuration.servers import RemoteServer, checked_server
from mcp_gateway.registration.catalog import ServerProbe
from starling.app.http.dependencies import Admin, ChangeActor, FromServices
from starling.app.http.problems import refusals
from starling.app.http.schemas import ClosedModel
from starling.app.http.server_documents import fault_of_the_document, source_of
from starling.app.registry.documents import ServerDetails, ServerSummary, ToolSettings
from starling.core.errors import InvalidRequestError
from starling.core.tools import ServerSource

router = APIRouter(prefix="/v1/servers", tags=["registry"], responses=refusals(503))


@dataclass(frozen=True, slots=True)
class ServerList:
    """All servers, by name."""

    servers: Sequence[ServerSummary]


class NewServer(ClosedModel):
    """A server and its configuration, as under `mcpServers` of a file."""

    name: str
    config: Annotated[Any, WithJsonSchema({"type": "object"})]
    imported: Annotated[bool, Field(description="Whether others wrote it: a `url` is then limited as with a key.")] = (
        False
    )


@dataclass(frozen=True, slots=True)
class AddedServer:
    """A new server, its tools in use and those that wait for approval, with reasons, and the first epoch with it."""

    name: str
    source: ServerSource
    tools: Sequence[str]
    quarantined: Mapping[str, str]
    epoch: int


@dataclass(frozen=True, slots=True)
class RemovedServer:
    """A server that was removed, and the first epoch without it."""

    name: str
    epoch: int


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


@router.post("", status_code=201, summary="Add a server", responses=refusals(403, 422, 502))
async def add(wanted: NewServer, caller: Admin, actor: ChangeActor, services: FromServices) -> AddedServer:
    """Add one server, for runs accepted from now on. It is started and listed; if that fails, nothing is stored.

    With a key, and with a `url` that is `imported`, all tools wait for approval, and the `url` has to be a public
    address or one of the setting `allowed_addresses`. A key's command is accepted only where the setting
    `stdio_over_http` allows it.
    """
    with fault_of_the_document():
        config = checked_server(wanted.name, wanted.config)
        if config.disabled:
            raise InvalidRequestError("A server that is `disabled` can't be added.", "Leave it out.")
        source = source_of(caller, "api" if wanted.imported and isinstance(config, RemoteServer) else "host")
        listing, report = await services.registry.add(wanted.name, config, actor, source=source)
    tools = [tool.name for tool in listing.tools]
    return AddedServer(wanted.name, source, tools, listing.quarantined, report.epoch)


@router.post("/{name}/test", summary="Test a server", responses=refusals(404, 502))
async def test(name: str, _: Admin, services: FromServices) -> ServerProbe:
    """Start a stored server, list its tools and compare them with the stored ones. Nothing is changed.

    It is reached as for a call: with the variables of its configuration, which an admin has accepted before.
    """
    return await services.registry.probe(name)


@router.delete("/{name}", summary="Remove a server", responses=refusals(403, 404))
async def remove(name: str, caller: Admin, actor: ChangeActor, services: FromServices) -> RemovedServer:
    """Remove a server and its specialist: its calls are refused or aborted at once, also in runs that have begun.

    One of a file comes back when the file is read again. One that was added on the platform's machine is removed only
    with the local token.
    """
    report = await services.registry.remove(name, actor, source=source_of(caller, "host"))
    return RemovedServer(name, report.epoch)


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
