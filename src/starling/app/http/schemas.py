"""Bodies that several routes share: requests for runs, interrupts and their answers."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from starling.app.runs.acceptance import AcceptedRun, RunRequest
from starling.app.threads import Name, ThreadName
from starling.core.run_document.document import RunInterrupt
from starling.core.runs import RunConfig, RunStatus
from starling.infra.postgres.runs.acceptance import Acceptance
from starling.infra.postgres.runs.busy_thread_policy import Policy
from starling.infra.postgres.runs.interrupts import InterruptAnswer, StoredInterrupt, public_interrupt

RUN_LOCATION: Final[dict[str, Any]] = {
    "Location": {"description": "The address of the run.", "schema": {"type": "string"}}
}


class ClosedModel(BaseModel):
    """A body or a query: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class RunBody(ClosedModel):
    """What a caller asks: a request on a thread, which begins with its first request."""

    input: Annotated[str, Field(min_length=1, description="The request, in plain words.")]
    thread_id: Annotated[ThreadName, Field(description="The conversation: any name, unique within your tenant.")]
    branch: Annotated[Name | None, Field(description="The branch of the thread; without it, its current one.")] = None
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

    def request(self) -> RunRequest:
        """Return the request that the body stands for."""
        policy = self.multitask_strategy
        return RunRequest(self.input, self.thread_id, self.correlation_id, self.config, policy, branch=self.branch)


def run_path(run_id: str) -> str:
    """Return the address of a run."""
    return f"/v1/runs/{run_id}"


class RunAccepted(BaseModel):
    """An accepted run. It is executed even if the client disconnects."""

    run_id: str
    thread_id: str
    status: RunStatus
    trace_id: str
    correlation_id: str

    @classmethod
    def of(cls, accepted: AcceptedRun | Acceptance) -> Self:
        """Return the response body of an accepted run."""
        return cls(status=accepted.status, **accepted.started.model_dump())


class Reply(ClosedModel):
    """An answer to an interrupt; `payload` has to fit its `responseSchema`, and is ignored with status `cancelled`."""

    status: Literal["resolved", "cancelled"]
    payload: dict[str, Any] = {}


class InterruptReply(Reply):
    """An answer to the interrupt with this id."""

    interruptId: UUID  # noqa: N815 - the contract's name

    def answer(self) -> InterruptAnswer:
        """Return the answer that the body stands for."""
        return InterruptAnswer(str(self.interruptId), self.status, self.payload)


type Replies = Annotated[list[InterruptReply], Field(min_length=1, max_length=100)]


class RunWaits(BaseModel):
    """The status of a run, and its open interrupts."""

    run_id: str
    status: RunStatus
    interrupts: Sequence[RunInterrupt]

    @classmethod
    def at(cls, run_id: str, status: RunStatus, waiting: Sequence[StoredInterrupt]) -> Self:
        """Return the response body of a waiting run."""
        return cls(run_id=run_id, status=status, interrupts=[public_interrupt(found) for found in waiting])
