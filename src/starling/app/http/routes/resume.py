"""Answer the open interrupts of a run."""

from uuid import UUID

from fastapi import APIRouter, Request

from starling.app.http.dependencies import Caller, FromServices
from starling.app.http.problems import Problem
from starling.app.http.schemas import Replies, RunWaits
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.runs.acceptance import RunKey

router = APIRouter(
    prefix="/v1/runs", tags=["runs"], responses={status: {"model": Problem} for status in (404, 409, 422, 503)}
)


@router.post("/{run_id}/resume", status_code=202, summary="Answer a run's interrupts")
async def resume(run_id: UUID, replies: Replies, request: Request, services: FromServices, caller: Caller) -> RunWaits:
    """Answer some or all of the run's interrupts, so that it continues. Either all answers are accepted or none.

    Repeated answers change nothing; different or late ones get 409.
    """
    key = RunKey(caller.tenant, str(run_id))
    actor = Actor.caller(caller, request.client.host if request.client else "")
    await services.runs.answering.answer(key, [reply.answer() for reply in replies], actor, caller)
    run = await services.runs.documents.row(key)
    return RunWaits.at(key.id, run.status, await services.runs.interrupts.waiting(key.tenant, run=key.id))
