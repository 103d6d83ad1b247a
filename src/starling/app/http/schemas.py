"""Bodies that several routes share: requests for runs, interrupts and their answers."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from starling.app.runs import acceptance
from starling.core.name_patterns import PRINTABLE_NAME
from starling.core.run_document.document import RunInterrupt
from starling.core.runs import RunConfig, RunStatus
from starling.infra.postgres.runs.busy_thread_policy import Policy
from starling.infra.postgres.runs.interrupts import InterruptAnswer, StoredInterrupt, public_interrupt

type Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=PRINTABLE_NAME)]

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
    "path": "t1",
    "reason": "shop.order may change something that can't be taken back.",
    "message": "mcp_agent_shop wants to call shop.order with exactly these arguments.",
    "responseSchema": _SCHEMA,
    "createdAt": "2026-11-20T11:12:01.250000Z",
    "expiresAt": "2026-11-21T11:12:01.250000Z",
    "call": _CALL,
    "state": "open",
    "answered_at": None,
    "answered_by": None,
    "seq": 6,
}

FEEDBACK: Final[dict[str, Any]] = {
    "score": 0.2,
    "comment": "It told the time of another city.",
    "by": "key_7c1f",
    "created_at": "2026-11-20T11:14:01.250000Z",
    "updated_at": "2026-11-20T11:14:01.250000Z",
}

ACCEPTED: Final[dict[str, Any]] = {
    "run_id": _RUN,
    "thread_id": "t-1",
    "status": "queued",
    "trace_id": "de2196c9a4c5d6e7f8091a2b3c4d5e6f",
    "correlation_id": _RUN,
}

RUN_LOCATION: Final[dict[str, Any]] = {
    "Location": {"description": "The address of the run.", "schema": {"type": "string"}}
}

_REPLY: Final[dict[str, Any]] = {
    "interruptId": _ID,
    "status": "resolved",
    "payload": {"answer": "The second disk."},
}


class RunRequest(BaseModel):
    """What a caller asks: a request on a thread, which begins with its first request."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={
            "examples": [
                {
                    "input": "What time is it in Lima, and how full is this disk?",
                    "thread_id": "t-1",
                    "config": {"mode": "MODERATE", "channel": "CHAT"},
                }
            ]
        },
    )

    input: Annotated[str, Field(min_length=1, description="The request, in plain words.")]
    thread_id: Annotated[Name, Field(description="The conversation: any name, unique within your tenant.")]
    correlation_id: Annotated[
        Name | None, Field(description="Repeated in `run_started`, the result, logs and traces.")
    ] = None
    config: RunConfig = RunConfig()
    multitask_strategy: Annotated[
        Policy,
        Field(
            description="While another run of the thread hasn't ended: `enqueue` waits for it, `reject` answers 409, "
            "`interrupt` cancels it."
        ),
    ] = "enqueue"

    def request(self) -> acceptance.RunRequest:
        """Return the request that the body stands for."""
        return acceptance.RunRequest(
            self.input, self.thread_id, self.correlation_id, self.config, self.multitask_strategy
        )


def run_path(run_id: str) -> str:
    """Return the address of a run."""
    return f"/v1/runs/{run_id}"


class RunAccepted(BaseModel):
    """An accepted run. It is executed even if the client disconnects."""

    model_config = ConfigDict(json_schema_extra={"examples": [ACCEPTED]})

    run_id: str
    thread_id: str
    status: RunStatus
    trace_id: str
    correlation_id: str

    @classmethod
    def of(cls, accepted: acceptance.AcceptedRun) -> Self:
        """Return the response body of an accepted run."""
        started = accepted.started
        return cls(
            run_id=started.run_id,
            thread_id=started.thread_id,
            status=accepted.status,
            trace_id=started.trace_id,
            correlation_id=started.correlation_id,
        )


class Reply(BaseModel):
    """An answer to an interrupt; `payload` has to fit its `responseSchema`, and is ignored with status `cancelled`."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={"examples": [{"status": "resolved", "payload": {"approved": True, "note": "Go ahead."}}]},
    )

    status: Literal["resolved", "cancelled"]
    payload: dict[str, Any] = {}


class InterruptReply(Reply):
    """An answer to the interrupt with this id."""

    model_config = ConfigDict(json_schema_extra={"examples": [_REPLY]})

    interruptId: UUID  # noqa: N815 - the contract's name

    def answer(self) -> InterruptAnswer:
        """Return the answer that the body stands for."""
        return InterruptAnswer(str(self.interruptId), self.status, self.payload)


type Replies = Annotated[list[InterruptReply], Field(min_length=1, max_length=100, examples=[[_REPLY]])]


class RunWaits(BaseModel):
    """The status of a run, and its open interrupts."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"run_id": _RUN, "status": "queued", "interrupts": [EXAMPLE]}]}
    )

    run_id: str
    status: RunStatus
    interrupts: Sequence[RunInterrupt]

    @classmethod
    def at(cls, run_id: str, status: RunStatus, waiting: Sequence[StoredInterrupt]) -> Self:
        """Return the response body of a waiting run."""
        return cls(run_id=run_id, status=status, interrupts=[public_interrupt(found) for found in waiting])
