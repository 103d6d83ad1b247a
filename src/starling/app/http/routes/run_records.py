"""Records of runs, for programs that judge them."""

import asyncio
import json
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Response
from pydantic import AwareDatetime, Field

from starling.app.http.dependencies import Caller, FromServices
from starling.app.http.problems import refusals
from starling.app.http.schemas import ClosedModel, Name
from starling.app.runs.records import RecordPage
from starling.core.runs import RunStatus
from starling.infra.postgres.runs.listing import RunFilter

router = APIRouter(prefix="/v1/records", tags=["runs"], responses=refusals(404, 422, 503))


class RecordQuery(ClosedModel):
    """Which runs."""

    run_id: UUID | None = Field(None, description="Only this run.")
    thread_id: Name | None = Field(None, description="Only those of this conversation.")
    status: RunStatus | None = Field(None, description="Only those with this status.")
    since: AwareDatetime | None = Field(None, description="Only those that were accepted at this moment or later.")
    before: UUID | None = Field(None, description="Only those that were accepted before this run.")
    limit: int = Field(10, ge=1, le=50)


@router.get("", summary="Export runs for evaluation", response_model=RecordPage)
async def records(services: FromServices, caller: Caller, wanted: Annotated[RecordQuery, Query()]) -> Response:
    """Return records of runs: what was asked, planned, called, judged, answered and said of it.

    A page ends early after records with 8 million characters.
    """
    before, one = (str(given) if given else None for given in (wanted.before, wanted.run_id))
    which = RunFilter(wanted.thread_id, wanted.status, before, since=wanted.since, id=one)
    found = await services.runs.records.page(caller.tenant, limit=wanted.limit, which=which)
    return Response(await asyncio.to_thread(_json, found), media_type="application/json")


def _json(page: RecordPage) -> bytes:
    """Return a page as JSON, made record by record: a page of 9 MB at once holds up other threads for 60 ms."""
    made = (record.model_dump_json(by_alias=True) for record in page.records)
    return f'{{"records":[{",".join(made)}],"next":{json.dumps(page.next)}}}'.encode()
