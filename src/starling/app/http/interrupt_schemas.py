"""What a run waits for, as routes show it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict

from starling.core.runs import RunStatus
from starling.infra.postgres.runs.interrupts import InterruptKind, StoredInterrupt

_ID, _RUN = "01a1f8ac-cbf4-7cdd-97b7-5ad5f772744e", "01a1f8ac-c002-7b1e-9a55-6f2b0d7c9e10"
_SCHEMA: dict[str, Any] = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}
_CALL: dict[str, Any] = {
    "name": "shop.order",
    "args": {"item": "tea", "count": 2},
    "task_id": "t1",
    "path": "t1",
    "call_id": "t1.0.0",
}
EXAMPLE: Final[dict[str, Any]] = {
    "id": _ID,
    "run_id": _RUN,
    "kind": "approval",
    "reason": "shop.order may change something that can't be taken back.",
    "message": "mcp_agent_shop wants to call shop.order with exactly these arguments.",
    "responseSchema": _SCHEMA,
    "createdAt": "2026-11-20T11:12:01.250000Z",
    "expiresAt": "2026-11-21T11:12:01.250000Z",
    "call": _CALL,
}


class OpenInterrupt(BaseModel):
    """What a run asks: `call` is the exact tool call that it is about, if any."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    id: str
    run_id: str
    kind: InterruptKind
    reason: str
    message: str
    responseSchema: dict[str, Any]  # noqa: N815 - as in the event
    createdAt: datetime | None  # noqa: N815
    expiresAt: datetime  # noqa: N815
    call: dict[str, Any] | None

    @classmethod
    def of(cls, found: StoredInterrupt) -> Self:
        """Return an interrupt as it is sent."""
        return cls(
            id=found.id,
            run_id=found.run_id,
            kind=found.kind,
            reason=found.reason,
            message=found.message,
            responseSchema=dict(found.response_schema),
            createdAt=found.created_at,
            expiresAt=found.expires_at,
            call=dict(found.call) if found.call else None,
        )


class RunWaits(BaseModel):
    """Where a run stands, and what it still waits for."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"run_id": _RUN, "status": "queued", "interrupts": [EXAMPLE]}]}
    )

    run_id: str
    status: RunStatus
    interrupts: list[OpenInterrupt]

    @classmethod
    def at(cls, run_id: str, status: RunStatus, waiting: Sequence[StoredInterrupt]) -> Self:
        """Return a run as it is told of."""
        return cls(run_id=run_id, status=status, interrupts=[OpenInterrupt.of(found) for found in waiting])
