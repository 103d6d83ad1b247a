"""Run a request: stream its events, or wait for the whole result."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import AliasChoices, ConfigDict, Field

from starling.app.http.dependencies import Caller, FromServices, IdempotencyKey
from starling.app.http.event_stream import RUN_ID, EventStream
from starling.app.http.problems import refusals
from starling.app.http.schemas import RunBody, RunWaits, ThreadName
from starling.app.runs.completion import ended
from starling.core.events.stream import AnyEvent
from starling.core.runs import RunResult, RunStatus, Step

router = APIRouter(tags=["agent"], responses=refusals(409, 422, 503))


class ProcessRequest(RunBody):
    """The same fields; `message` and `session_id` are other names for `input` and `thread_id`."""

    input: str = Field(min_length=1, validation_alias=AliasChoices("input", "message"))
    thread_id: ThreadName = Field(validation_alias=AliasChoices("thread_id", "session_id"))


class ProcessResult(RunResult):
    """The whole result of a run. `code` says why it did not succeed, null if it did."""

    model_config = ConfigDict(extra="ignore", json_schema_serialization_defaults_required=True)

    steps: list[Step]
    trace_id: str
    thread_id: str
    run_id: str
    correlation_id: str


class ProcessWaits(RunWaits):
    """A run that needs an answer, with its steps so far."""

    steps: list[Step]
    trace_id: str


@router.post(
    "/v1/agent/run",
    summary="Run and stream events",
    response_class=EventStream,
    responses={
        200: {
            "model": AnyEvent,
            "description": "The run's events up to `done`; if the message answered a waiting run, the further ones.",
            "headers": {RUN_ID: {"description": "The run's id.", "schema": {"type": "string"}}},
        }
    },
)
async def run(
    request: RunBody, services: FromServices, caller: Caller, idempotency_key: IdempotencyKey = None
) -> EventStream:
    """Accept a run and stream its events. It continues if the client disconnects: see `/v1/runs/{id}/events`."""
    accepted = await services.runs.acceptance.accept(caller, request.request(), idempotency_key)
    stream = EventStream(accepted.events, services.runs.acceptance.limits)
    stream.headers[RUN_ID] = accepted.key.id
    return stream


@router.post(
    "/process",
    response_model=ProcessResult,
    summary="Run and return the whole result",
    responses={202: {"model": ProcessWaits, "description": "The run waits for an answer: send it to `/resume`."}},
)
async def process(
    request: ProcessRequest, services: FromServices, caller: Caller, idempotency_key: IdempotencyKey = None
) -> ProcessResult | JSONResponse:
    """Accept a run, wait for its end and return its whole result. It continues if the client disconnects.

    If the run needs an answer, the response is 202 with its open interrupts.
    """
    accepted = await services.runs.acceptance.accept(caller, request.request(), idempotency_key)
    key = accepted.key
    has_ended = await ended(services.runs.documents, key, accepted.events)
    run, steps = await services.runs.documents.row(key), await services.runs.reader.steps(key)
    if not has_ended:
        waits = RunWaits.at(key.id, RunStatus.WAITING, await services.runs.interrupts.waiting(key.tenant, run=key.id))
        found = ProcessWaits.model_validate({**waits.model_dump(), "steps": steps, "trace_id": run.trace_id})
        return JSONResponse(found.model_dump(mode="json"), 202)
    ids = {name: getattr(run, name) for name in ("trace_id", "thread_id", "run_id", "correlation_id")}
    return ProcessResult.model_validate({**(run.result or {}), **ids, "steps": steps}, extra="ignore")
