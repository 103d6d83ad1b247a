"""The effectful calls of a run."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from starling.app.http.dependencies import Caller, FromServices
from starling.app.http.problems import refusals
from starling.core.json import JsonObject
from starling.infra.postgres.runs.acceptance import RunKey

router = APIRouter(prefix="/v1/runs", tags=["runs"], responses=refusals(404, 503))


def _text(outcome: JsonObject | None) -> object:
    return outcome["text"] if outcome else None


class EffectfulCall(BaseModel):
    """A tool call that may change something, with its state: a row of the ledger under the names of the API."""

    model_config = ConfigDict(from_attributes=True)

    call_id: str = Field(description="As in `tool_start` and `tool_result`.")
    key: str = Field(
        validation_alias="sent_key",
        description="The idempotency key that was sent in `_meta` as `starling/idempotency-key`.",
    )
    path: str
    name: str = Field(validation_alias="tool")
    args: dict[str, Any] = Field(validation_alias="arguments")
    effect: Literal["idempotent", "unsafe"]
    state: Literal["intended", "dispatched", "succeeded", "reused", "unusable", "failed", "in_doubt"]
    settled: bool = Field(
        description="Whether the run goes on with this; a call in doubt is settled if it was given up, or if it is "
        "idempotent and may be repeated under its key."
    )
    result: Annotated[str | None, BeforeValidator(_text)] = Field(validation_alias="outcome")
    life: int = Field(
        validation_alias="fence",
        description="The number of the execution of the run that sent it last, 0 before it was sent.",
    )
    intended_at: datetime | None = Field(validation_alias="created_at")
    dispatched_at: datetime | None
    settled_at: datetime | None
    settled_by: str | None = Field(
        description="The person or the tool that settled it; null if the call's own answer did."
    )


class Calls(BaseModel):
    """The calls of a run that may change something, in the order in which they were intended."""

    calls: list[EffectfulCall]


@router.get("/{run_id}/calls", summary="List a run's calls with effects", responses=refusals(422))
async def calls(run_id: UUID, services: FromServices, caller: Caller) -> Calls:
    """List the run's calls of tools that may change something, with their states."""
    key = RunKey(caller.tenant, str(run_id))
    await services.runs.documents.row(key)  # 404 for a run that isn't there
    return Calls(calls=[EffectfulCall.model_validate(row) for row in await services.runs.ledger.calls(key)])
