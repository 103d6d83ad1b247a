"""The effectful calls of a run."""

from datetime import datetime
from typing import Any, Literal, Self
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, Field

from starling.app.http.dependencies import Caller, FromServices
from starling.app.http.problems import Problem
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.ledger import LedgerRow

router = APIRouter(prefix="/v1/runs", tags=["runs"], responses={404: {"model": Problem}, 503: {"model": Problem}})


class EffectfulCall(BaseModel):
    """A tool call that may change something, with its state."""

    call_id: str = Field(description="As in `tool_start` and `tool_result`.")
    key: str = Field(description="The idempotency key that was sent in `_meta` as `starling/idempotency-key`.")
    path: str
    name: str
    args: dict[str, Any]
    effect: Literal["idempotent", "unsafe"]
    state: Literal["intended", "dispatched", "succeeded", "unusable", "failed", "in_doubt"]
    settled: bool = Field(
        description="Whether the run goes on with this; a call in doubt is settled if it was given up, or if it is "
        "idempotent and may be repeated under its key."
    )
    result: str | None
    life: int = Field(description="The number of the execution of the run that sent it last, 0 before it was sent.")
    intended_at: datetime | None
    dispatched_at: datetime | None
    settled_at: datetime | None
    settled_by: str | None = Field(
        description="The person or the tool that settled it; null if the call's own answer did."
    )

    @classmethod
    def of(cls, row: LedgerRow) -> Self:
        """Return the response body of a call."""
        return cls.model_validate(
            {
                "call_id": row.call_id,
                "key": row.sent_key,
                "path": row.path,
                "name": row.tool,
                "args": row.arguments,
                "effect": row.effect,
                "state": row.state,
                "settled": row.settled,
                "result": row.outcome["text"] if row.outcome else None,
                "life": row.fence,
                "intended_at": row.created_at,
                "dispatched_at": row.dispatched_at,
                "settled_at": row.settled_at,
                "settled_by": row.settled_by,
            }
        )


class Calls(BaseModel):
    """The calls of a run that may change something, in the order in which they were intended."""

    calls: list[EffectfulCall]


@router.get("/{run_id}/calls", summary="List a run's calls with effects", responses={422: {"model": Problem}})
async def calls(run_id: UUID, services: FromServices, caller: Caller) -> Calls:
    """List the run's calls of tools that may change something, with their states."""
    key = RunKey(caller.tenant, str(run_id))
    await services.runs.documents.row(key)  # 404 for a run that isn't there
    return Calls(calls=[EffectfulCall.of(row) for row in await services.runs.ledger.calls(key)])
