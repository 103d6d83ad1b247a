"""Open interrupts of runs, listed and answered: approvals, questions, budgets, and calls in doubt."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from starling.app.http.dependencies import Caller, ChangeActor, FromServices
from starling.app.http.problems import refusals
from starling.app.http.schemas import ClosedModel, Replies, Reply, RunWaits
from starling.core.run_document.document import InterruptKind, RunInterrupt
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.interrupts import InterruptAnswer, public_interrupt

router = APIRouter(responses=refusals(503))


class WaitingQuery(ClosedModel):
    """Filters of the list of open interrupts."""

    kind: InterruptKind | None = Field(None, description="Only of this kind.")
    run_id: UUID | None = Field(None, description="Only of this run.")
    after: UUID | None = Field(None, description="Only those that follow this one.")
    limit: int = Field(100, ge=1, le=500)


class InterruptPage(BaseModel):
    """Open interrupts, oldest first. `next` is the value of `after` for the next page, null on the last page."""

    interrupts: list[RunInterrupt]
    next: str | None


@router.get("/v1/approvals", tags=["approvals"], summary="List open interrupts", responses=refusals(422))
async def waiting(services: FromServices, caller: Caller, wanted: Annotated[WaitingQuery, Query()]) -> InterruptPage:
    """List the open interrupts of your runs."""
    run, after = (str(given) if given else None for given in (wanted.run_id, wanted.after))
    found = await services.runs.interrupts.waiting(
        caller.tenant, run=run, kind=wanted.kind, after=after, limit=wanted.limit + 1
    )
    shown, more = found[: wanted.limit], len(found) > wanted.limit
    return InterruptPage(interrupts=[public_interrupt(item) for item in shown], next=shown[-1].id if more else None)


@router.post(
    "/v1/approvals/{interrupt_id}",
    tags=["approvals"],
    status_code=202,
    summary="Answer an interrupt",
    responses=refusals(404, 409, 422),
)
async def answer(
    interrupt_id: UUID, reply: Reply, services: FromServices, caller: Caller, actor: ChangeActor
) -> RunWaits:
    """Answer one interrupt, so that its run continues. A repeated answer changes nothing; a different one gets 409."""
    given = InterruptAnswer(str(interrupt_id), reply.status, reply.payload)
    key = await services.runs.answering.answer_one(given, actor, caller)
    run = await services.runs.documents.row(key)
    return RunWaits.at(key.id, run.status, await services.runs.interrupts.waiting(key.tenant, run=key.id))


@router.post(
    "/v1/runs/{run_id}/resume",
    tags=["runs"],
    status_code=202,
    summary="Answer a run's interrupts",
    responses=refusals(404, 409, 422),
)
async def resume(
    run_id: UUID, replies: Replies, services: FromServices, caller: Caller, actor: ChangeActor
) -> RunWaits:
    """Answer some or all of the run's interrupts, so that it continues. Either all answers are accepted or none.

    Repeated answers change nothing; different or late ones get 409.
    """
    key = RunKey(caller.tenant, str(run_id))
    await services.runs.answering.answer(key, [reply.answer() for reply in replies], actor, caller)
    run = await services.runs.documents.row(key)
    return RunWaits.at(key.id, run.status, await services.runs.interrupts.waiting(key.tenant, run=key.id))
