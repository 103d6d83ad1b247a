"""The effectful calls of a run."""

from datetime import datetime
from typing import Any, Literal, Self
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from starling.app.http.dependencies import Caller, FromServices
from starling.app.http.problems import Problem
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.ledger import LedgerRow

router = APIRouter(prefix="/v1/runs", tags=["runs"], responses={404: {"model": Problem}, 503: {"model": Problem}})

_EXAMPLE: dict[str, Any] = {
    "call_id": "t1.0.0",
    "key": "9b3f0d3c7f0b1f0e6b1f0e9d4f7c2a51c8e3d6b7a4f5e2d1c0b9a8f7e6d5c4b3",
    "path": "t1",
    "name": "shop.order",
    "args": {"item": "tea", "count": 2},
    "effect": "unsafe",
    "state": "succeeded",
    "settled": True,
    "result": "Ordered under the number 4711.",
    "life": 1,
    "intended_at": "2026-11-20T11:12:01.250000Z",
    "dispatched_at": "2026-11-20T11:12:01.270000Z",
    "settled_at": "2026-11-20T11:13:20.500000Z",
    "settled_by": "shop.find_order",
}


class EffectfulCall(BaseModel):
    """A tool call that may change something, with its state."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

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

    model_config = ConfigDict(json_schema_extra={"examples": [{"calls": [_EXAMPLE]}]})

    calls: list[EffectfulCall]


@router.get("/{run_id}/calls", summary="List a run's calls with effects", responses={422: {"model": Problem}})
async def calls(run_id: UUID, services: FromServices, caller: Caller) -> Calls:
    """List the run's calls of tools that may change something, with their states."""
    key = RunKey(caller.tenant, str(run_id))
    await services.runs.documents.row(key)  # 404 for a run that isn't there
    return Calls(calls=[EffectfulCall.of(row) for row in await services.runs.ledger.calls(key)])
