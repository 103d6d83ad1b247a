"""The audit trail: who changed what."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from starling.app.http.dependencies import Admin, FromServices
from starling.app.http.problems import refusals
from starling.app.http.schemas import ClosedModel
from starling.core.principal import SHARED
from starling.infra.postgres.audit import AuditEntry, latest

router = APIRouter(prefix="/v1/audit", tags=["audit"], responses=refusals(422, 503))


class AuditQuery(ClosedModel):
    """How many changes are listed."""

    limit: int = Field(50, ge=1, le=500)


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Changes, newest first."""

    changes: Sequence[AuditEntry]


@router.get("", summary="List changes")
async def changes(caller: Admin, services: FromServices, wanted: Annotated[AuditQuery, Query()]) -> AuditPage:
    """List the latest changes of your tenant's callers; with the local token also those of commands and starts."""
    tenants = (caller.tenant, SHARED) if caller.on_host else (caller.tenant,)
    return AuditPage(await latest(services.storage.engine, *tenants, limit=wanted.limit))
