"""Cancelling runs."""

from uuid import UUID

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict

from starling.app.http.dependencies import Caller, FromServices
from starling.app.http.problems import Problem
from starling.core.runs import RunStatus
from starling.infra.postgres.runs.acceptance import RunKey

router = APIRouter(prefix="/v1/runs", tags=["runs"], responses={404: {"model": Problem}, 503: {"model": Problem}})


class Cancelled(BaseModel):
    """Where a run stands after somebody cancelled it."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"run_id": "0199c0de-0000-7000-8000-000000000000", "status": "cancelled"}]}
    )

    run_id: str
    status: RunStatus


@router.post(
    "/{run_id}/cancel",
    status_code=202,
    summary="Cancel a run",
    responses={200: {"model": Cancelled, "description": "The run is over, maybe for other reasons."}},
)
async def cancel(run_id: UUID, response: Response, services: FromServices, caller: Caller) -> Cancelled:
    """End a run before its time. One that waits, or is queued, ends at once; a running one within a second.

    What it had found stays on its thread, whose next run goes on from there. A run that has ended stays as it is: to
    cancel it again changes nothing.
    """
    status = await services.cancellation.cancel(RunKey(caller.tenant, str(run_id)))
    if status.terminal:
        response.status_code = 200
    return Cancelled(run_id=str(run_id), status=status)
