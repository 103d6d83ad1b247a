"""Governance: what requests of each mode and channel are allowed, and what another table would change."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field

from starling.app.http.dependencies import Admin, FromServices
from starling.app.http.problems import refusals
from starling.app.http.schemas import ClosedModel
from starling.app.http.server_documents import refuse_repeated_names
from starling.app.registry.governance import GovernanceCheck, GovernanceInForce
from starling.core.governance import GovernanceTable

router = APIRouter(prefix="/v1/governance", tags=["registry"], responses=refusals(422))


class TenantQuery(ClosedModel):
    """Whose rows are shown; without a tenant, those of all."""

    tenant: str = Field("", max_length=200)


@router.get("", summary="Show the governance table")
async def show(_: Admin, services: FromServices, wanted: Annotated[TenantQuery, Query()]) -> GovernanceInForce:
    """Return the table of the active epoch, and what it allows in each cell of mode and channel."""
    return await services.governance.show(wanted.tenant)


@router.post("/check", summary="Check a governance table")
async def check(request: Request, table: GovernanceTable, _: Admin, services: FromServices) -> GovernanceCheck:
    """Compare a table with that of the active epoch. Changes nothing; a reload with the table puts it into force."""
    refuse_repeated_names(await request.body())
    return await services.governance.check(table)
