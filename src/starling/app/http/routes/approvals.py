"""Open interrupts of all runs: approvals, questions, budgets, and calls in doubt."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from starling.app.http.dependencies import Caller, FromServices
from starling.app.http.problems import Problem
from starling.app.http.schemas import Reply, RunWaits
from starling.core.run_document.document import InterruptKind, RunInterrupt
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.runs.interrupts import InterruptAnswer, public_interrupt

router = APIRouter(prefix="/v1/approvals", tags=["approvals"], responses={503: {"model": Problem}})

_REFUSALS: dict[int | str, dict[str, Any]] = {status: {"model": Problem} for status in (404, 409, 422)}


class WaitingQuery(BaseModel):
    """Filters of the list of open interrupts."""

    model_config = ConfigDict(extra="forbid")

    kind: InterruptKind | None = Field(None, description="Only of this kind.")
    run_id: UUID | None = Field(None, description="Only of this run.")
    after: UUID | None = Field(None, description="Only those that follow this one.")
    limit: int = Field(100, ge=1, le=500)


class Waiting(BaseModel):
    """Open interrupts, oldest first. `next` is the value of `after` for the next page, null on the last page."""

    interrupts: list[RunInterrupt]
    next: str | None


@router.get("", summary="List open interrupts", responses={422: {"model": Problem}})
async def waiting(services: FromServices, caller: Caller, wanted: Annotated[WaitingQuery, Query()]) -> Waiting:
    """List the open interrupts of your runs."""
    run, after = (str(given) if given else None for given in (wanted.run_id, wanted.after))
    found = await services.runs.interrupts.waiting(
        caller.tenant, run=run, kind=wanted.kind, after=after, limit=wanted.limit + 1
    )
    shown, more = found[: wanted.limit], len(found) > wanted.limit
    return Waiting(interrupts=[public_interrupt(item) for item in shown], next=shown[-1].id if more else None)


@router.post("/{interrupt_id}", status_code=202, summary="Answer an interrupt", responses=_REFUSALS)
async def answer(
    interrupt_id: UUID, reply: Reply, request: Request, services: FromServices, caller: Caller
) -> RunWaits:
    """Answer one interrupt, so that its run continues. A repeated answer changes nothing; a different one gets 409."""
    actor = Actor.caller(caller, request.client.host if request.client else "")
    given = InterruptAnswer(str(interrupt_id), reply.status, reply.payload)
    key = await services.runs.answering.answer_one(given, actor, caller)
    run = await services.runs.documents.row(key)
    return RunWaits.at(key.id, run.status, await services.runs.interrupts.waiting(key.tenant, run=key.id))
