"""Records of runs, for programs that judge them."""

import asyncio
import json
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Response
from pydantic import AwareDatetime, BaseModel, Field

from starling.app.http.dependencies import Caller, FromServices
from starling.app.http.problems import refusals
from starling.app.http.schemas import ClosedModel, Name
from starling.app.runs.records import RecordsPage
from starling.core.run_document.document import Feedback
from starling.core.runs import RunStatus
from starling.infra.postgres.runs.listing import RunFilter

router = APIRouter(prefix="/v1/records", tags=["runs"], responses=refusals(404, 422, 503))

type Documents = list[dict[str, Any]]


class RunRecord(BaseModel):
    """A run as it is judged. `pruned`: its plans, tasks, calls, verdicts and steps were deleted by retention."""

    schema_: Annotated[Literal["starling.run/1"], Field(alias="schema")]
    run_id: str
    thread_id: str
    trace_id: str
    correlation_id: str
    epoch: int
    status: RunStatus
    code: str | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    request: str
    plans: Annotated[Documents, Field(description="As in the events `plan`, every version, also those of teams.")]
    tasks: Annotated[Documents, Field(description="As in the events `task_result`, with the text of the `task`.")]
    calls: Annotated[Documents, Field(description="As in `tool_start` and `tool_result`, with the step's metadata.")]
    verdicts: Annotated[Documents, Field(description="As in the events `reflection`.")]
    reply: str
    citations: Documents
    assumptions: list[str]
    degraded: Documents
    scores: Annotated[Documents, Field(description="As in Langfuse: `name`, `value`, `comment` and what each is of.")]
    feedback: list[Feedback]
    prompts: Annotated[Documents, Field(description="The prompts that models were asked with.")]
    usage: dict[str, Any] | None
    steps: Documents
    pruned: bool


class RecordQuery(ClosedModel):
    """Which runs."""

    run_id: UUID | None = Field(None, description="Only this run.")
    thread_id: Name | None = Field(None, description="Only those of this conversation.")
    status: RunStatus | None = Field(None, description="Only those with this status.")
    since: AwareDatetime | None = Field(None, description="Only those that were accepted at this moment or later.")
    before: UUID | None = Field(None, description="Only those that were accepted before this run.")
    limit: int = Field(10, ge=1, le=50)


class RecordPage(BaseModel):
    """Records, newest first. `next` is the value of `before` for the next page, null on the last page."""

    records: list[RunRecord]
    next: str | None


@router.get("", summary="Export runs for evaluation", response_model=RecordPage)
async def records(services: FromServices, caller: Caller, wanted: Annotated[RecordQuery, Query()]) -> Response:
    """Return records of runs: what was asked, planned, called, judged, answered and said of it.

    A page ends early after records with 8 million characters.
    """
    before, one = (str(given) if given else None for given in (wanted.before, wanted.run_id))
    which = RunFilter(wanted.thread_id, wanted.status, before, since=wanted.since, id=one)
    found = await services.runs.records.page(caller.tenant, limit=wanted.limit, which=which)
    return Response(await asyncio.to_thread(_json, found), media_type="application/json")


def _json(page: RecordsPage) -> bytes:
    """Return a page as JSON, made record by record: a page of 9 MB at once holds up other threads for 60 ms."""
    made = (RunRecord.model_validate(record).model_dump_json(by_alias=True) for record in page.records)
    return f'{{"records":[{",".join(made)}],"next":{json.dumps(page.next)}}}'.encode()
