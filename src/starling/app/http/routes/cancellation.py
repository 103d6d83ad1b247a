"""Cancel runs."""

from uuid import UUID

from fastapi import APIRouter, Response
from pydantic import BaseModel

from starling.app.http.dependencies import Caller, FromServices
from starling.app.http.problems import refusals
from starling.core.runs import RunStatus
from starling.infra.postgres.runs.acceptance import RunKey

router = APIRouter(prefix="/v1/runs", tags=["runs"], responses=refusals(404, 503))


class Cancelled(BaseModel):
    """The status of a run after a request to cancel it."""

    run_id: str
    status: RunStatus


@router.post(
    "/{run_id}/cancel",
    status_code=202,
    summary="Cancel a run",
    responses={200: {"model": Cancelled, "description": "The run has ended, as cancelled or otherwise."}},
)
async def cancel(run_id: UUID, response: Response, services: FromServices, caller: Caller) -> Cancelled:
    """Cancel a run. A queued or waiting run ends at once, a running one within a second.

    The results that it had stay on its thread for the next run. Cancelling a run that has ended changes nothing.
    """
    status = await services.runs.cancellation.cancel(RunKey(caller.tenant, str(run_id)))
    if status.terminal:
        response.status_code = 200
    return Cancelled(run_id=str(run_id), status=status)
