"""The registry: list epochs; plan, reload and roll back servers."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from brain.registry.repository import EpochRecord
from mcp_gateway.configuration.servers import McpConfig, parse_config
from starling.app.http.dependencies import Admin, ChangeActor, FromServices
from starling.app.http.problems import refusals
from starling.app.http.schemas import ClosedModel
from starling.app.http.server_documents import fault_of_the_document, refuse_repeated_names, source_of
from starling.app.registry.service import RegistryReport
from starling.core.governance import GovernanceTable

router = APIRouter(prefix="/v1/registry", tags=["registry"], responses=refusals(422))


class ServersDocument(BaseModel):
    """The content of an `mcpServers` file, at most 2,000 servers, and a governance table; other keys are ignored.

    Of both, what is left out stays as it is.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    servers: dict[str, Annotated[Any, WithJsonSchema({"type": "object"})]] | None = Field(
        None, alias="mcpServers", max_length=2_000
    )
    governance: GovernanceTable | None = None


class HowToRead(ClosedModel):
    """How a document is compared with the active epoch."""

    relist: bool = Field(False, description="Also list servers with an unchanged configuration again.")


class ListQuery(ClosedModel):
    """The length of the list of epochs."""

    limit: int = Field(20, ge=1, le=1000)


class Rollback(ClosedModel):
    """The epoch to return to; without a number, the one before servers last changed."""

    number: Annotated[int, Field(ge=1, lt=2**63, strict=True)] | None = None


@dataclass(frozen=True, slots=True)
class Epochs:
    """The latest epochs, newest first."""

    epochs: Sequence[EpochRecord]


@router.get("", summary="List epochs")
async def epochs(_: Admin, services: FromServices, wanted: Annotated[ListQuery, Query()]) -> Epochs:
    """List the latest epochs."""
    return Epochs(await services.storage.epochs.latest(wanted.limit))


@router.post("/plan", summary="Plan a reload", responses=refusals(403))
async def plan(
    request: Request,
    caller: Admin,
    services: FromServices,
    how: Annotated[HowToRead, Query()],
    document: ServersDocument | None = None,
) -> RegistryReport:
    """Compare a document, and the texts that prompts have at their sources, with the active epoch.

    Servers that are new or changed are listed. Without a document servers stay as they are.

    Processes are started, and variables sent, for that only for an admin of the platform's machine, who sends the local
    token.
    """
    with fault_of_the_document():
        return await services.registry.plan(
            await _config(request, document),
            relist=how.relist,
            source=source_of(caller, "file"),
            governance=document.governance if document else None,
        )


@router.post("/reload", summary="Reload the registry", responses=refusals(403))
async def reload(
    request: Request,
    caller: Admin,
    actor: ChangeActor,
    services: FromServices,
    how: Annotated[HowToRead, Query()],
    document: ServersDocument | None = None,
) -> RegistryReport:
    """Apply the changes that a plan of the same document lists. Servers that were added separately stay unchanged.

    Without a document all servers stay unchanged, and only prompts are taken.

    Prompts take the texts that their sources have now. New or changed stdio servers are accepted from an admin of the
    platform's machine, who sends the local token; from others only where the setting `stdio_over_http` allows their
    command, else the answer is 403.
    """
    with fault_of_the_document():
        config = await _config(request, document)
        return await services.registry.reload(
            config,
            actor,
            relist=how.relist,
            source=source_of(caller, "file"),
            with_prompts=True,
            governance=document.governance if document else None,
        )


@router.post("/rollback", summary="Roll back to an earlier epoch", responses=refusals(403, 404))
async def rollback(wanted: Rollback, caller: Admin, actor: ChangeActor, services: FromServices) -> RegistryReport:
    """Create a new epoch with the servers of an earlier one. Custom agents and teams of tenants stay unchanged.

    With a key, it is refused where it would remove or change a server that was added on the platform's machine.
    """
    return await services.registry.rollback(wanted.number, actor, source=source_of(caller, "file"))


async def _config(request: Request, document: ServersDocument | None) -> McpConfig | None:
    """Read the body as a file is read, which refuses repeated names; None if it has no servers.

    Raises ConfigurationError.
    """
    body = await request.body()
    if not body.strip():
        return None
    if document and document.servers is None and document.governance:
        refuse_repeated_names(body)
        return None
    return await asyncio.to_thread(parse_config, body.decode("utf-8-sig", "surrogatepass"), "The document")
