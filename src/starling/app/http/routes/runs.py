"""Background runs: accept, list, show, and stream their events."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Self
from uuid import UUID

from fastapi import APIRouter, Header, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from starling.app.container.services import Services
from starling.app.http.dependencies import Caller, FromServices, IdempotencyKey
from starling.app.http.event_stream import EventStream
from starling.app.http.problems import Problem
from starling.app.http.prompt_bodies import WORDING, Wording
from starling.app.http.schemas import (
    ACCEPTED,
    FEEDBACK,
    RUN_LOCATION,
    Name,
    OpenInterrupt,
    RunAccepted,
    RunFeedback,
    RunRequest,
    TaskSkills,
    run_path,
)
from starling.core.events.stream import AnyEvent
from starling.core.runs import RunResult, RunStatus
from starling.infra.postgres.runs import listing
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.feedback import Feedback
from starling.infra.postgres.runs.interrupts import StoredInterrupt
from starling.infra.postgres.runs.listing import PromptFilter, RunDetails, RunFilter, RunSummary

router = APIRouter(prefix="/v1/runs", tags=["runs"], responses={404: {"model": Problem}, 503: {"model": Problem}})

_LARGEST, _DIGITS = 2**63 - 1, 19
_ID = "01a1f8ac-cbf4-7cdd-97b7-5ad5f772744e"
_MOMENT = "2026-11-20T11:12:01.250000Z"
_ENDED: dict[str, Any] = ACCEPTED | {
    "status": "succeeded",
    "epoch": 3,
    "input": "What time is it in Lima?",
    "events": 10,
    "created_at": _MOMENT,
    "started_at": _MOMENT,
    "ended_at": _MOMENT,
    "result": {"status": "succeeded", "reply": "It is 06:12 in Lima [1]."},
    "why": None,
    "behind": None,
    "interrupts": [],
    "skills": [
        {"task_id": "t1", "path": "t1", "skills": [{"id": _ID, "task": "What time is it in {city}?", "followed": True}]}
    ],
    "feedback": [FEEDBACK],
    "prompts": [WORDING],
}
_PAGE: dict[str, Any] = {
    "runs": [
        {
            "run_id": _ID,
            "thread_id": "t-1",
            "status": "running",
            "created_at": _MOMENT,
            "seconds": 0.8,
            "input": "What time is it in Lima?",
        }
    ],
    "next": None,
}


class Why(BaseModel):
    """What ended a run before its time."""

    code: str
    message: str


class Behind(BaseModel):
    """An earlier run of the thread that hasn't ended."""

    run_id: str
    status: RunStatus


class RunState(RunAccepted):
    """The current state of a run."""

    model_config = ConfigDict(json_schema_extra={"examples": [_ENDED]})

    epoch: int
    input: str
    events: int = Field(description="The number of the latest event.")
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    result: RunResult | None = Field(description="Once the run has ended.")
    why: Why | None = Field(description="What ended the run before its time, if anything did.")
    behind: Behind | None = Field(description="While it is queued: the run of its thread that has to end first.")
    interrupts: list[OpenInterrupt] = Field(description="What the run waits for.")
    skills: list[TaskSkills] = Field(description="The skills that its finished tasks had in their prompts.")
    feedback: list[RunFeedback] = Field(description="What its readers say of it, oldest first.")
    prompts: list[Wording] = Field(
        default_factory=list[Wording], description="The wordings that its model calls used, in order of first use."
    )

    @classmethod
    def at(
        cls,
        run: RunDetails,
        waiting: Sequence[StoredInterrupt],
        skills: Sequence[listing.TaskSkills],
        feedback: Sequence[Feedback],
    ) -> Self:
        """Return a run as it is sent."""
        return cls(
            run_id=run.id,
            thread_id=run.thread_id,
            status=run.status,
            trace_id=run.trace_id,
            correlation_id=run.correlation_id,
            epoch=run.epoch,
            input=run.input,
            events=run.events,
            created_at=run.created_at,
            started_at=run.started_at,
            ended_at=run.ended_at,
            result=run.result,
            why=Why(code=run.failure.code, message=run.failure.message) if run.failure else None,
            behind=Behind(run_id=run.behind.run_id, status=run.behind.status) if run.behind else None,
            interrupts=[OpenInterrupt.of(found) for found in waiting],
            skills=[TaskSkills.model_validate(found) for found in skills],
            feedback=[RunFeedback.model_validate(given) for given in feedback],
        )


class RunQuery(BaseModel):
    """Filters of the list of runs."""

    model_config = ConfigDict(extra="forbid")

    thread_id: Name | None = Field(None, description="Only those of this conversation.")
    status: RunStatus | None = Field(None, description="Only those with this status.")
    before: UUID | None = Field(None, description="Only those that were accepted before this run.")
    ending: str | None = Field(
        None, pattern="^[0-9a-f]{4,32}$", description="Only those whose id, without hyphens, ends in these hex digits."
    )
    prompt: str | None = Field(
        None,
        pattern="^[0-9a-z_]{1,64}$",
        description="Only those with a model call that used this prompt: by its hash or how that begins, or its name.",
    )
    limit: int = Field(20, ge=1, le=200)


class ListedRun(BaseModel):
    """A run in the list. `seconds` is its duration so far; `input` is the beginning of its request."""

    run_id: str
    thread_id: str
    status: RunStatus
    created_at: datetime
    seconds: float
    input: str

    @classmethod
    def of(cls, run: RunSummary) -> Self:
        """Return a run as it is listed."""
        return cls(
            run_id=run.id,
            thread_id=run.thread_id,
            status=run.status,
            created_at=run.created_at,
            seconds=run.seconds,
            input=run.input,
        )


class RunPage(BaseModel):
    """Runs, newest first. `next` is the value of `before` for the next page, null on the last page."""

    model_config = ConfigDict(json_schema_extra={"examples": [_PAGE]})

    runs: list[ListedRun]
    next: str | None


@router.post(
    "",
    status_code=202,
    summary="Start a run in the background",
    responses={
        202: {"headers": RUN_LOCATION},
        409: {"model": Problem},
        422: {"model": Problem},
    },
)
async def begin(
    request: RunRequest,
    response: Response,
    services: FromServices,
    caller: Caller,
    idempotency_key: IdempotencyKey = None,
) -> RunAccepted:
    """Accept a run. Its state is at `Location`, its events are at `/v1/runs/{id}/events`."""
    accepted = await services.acceptance.accept(caller, request.request(), idempotency_key)
    response.headers["Location"] = run_path(accepted.key.id)
    return RunAccepted.of(accepted)


@router.get("", summary="List runs", responses={422: {"model": Problem}})
async def latest(services: FromServices, caller: Caller, wanted: Annotated[RunQuery, Query()]) -> RunPage:
    """List runs, newest first. A `prompt` whose text is not stored is answered with 404."""
    before = str(wanted.before) if wanted.before else None
    prompt = await _prompt(services, wanted.prompt) if wanted.prompt else None
    which = RunFilter(wanted.thread_id, wanted.status, before, wanted.ending, prompt)
    found = await services.listing.latest(caller.tenant, limit=wanted.limit + 1, which=which)
    shown, more = found[: wanted.limit], len(found) > wanted.limit
    return RunPage(runs=[ListedRun.of(run) for run in shown], next=shown[-1].id if more else None)


async def _prompt(services: Services, wanted: str) -> PromptFilter:
    digest = (await services.prompt_catalog.show(wanted)).wording.hash
    return PromptFilter(digest, await services.epochs.pinning_prompt(digest))


@router.get("/{run_id}", summary="Show a run")
async def show(run_id: UUID, services: FromServices, caller: Caller) -> RunState:
    """Return the status of a run, its open interrupts and, once it has ended, its result."""
    key = RunKey(caller.tenant, str(run_id))
    run = await services.listing.details(key)
    waiting = await services.interrupts.waiting(key.tenant, run=run.id) if run.ended_at is None else ()
    feedback = await services.feedback.of_run(key)
    state = RunState.at(run, waiting, await services.listing.skills(key), feedback)
    return state.model_copy(update={"prompts": [Wording.of(one) for one in await services.listing.prompts(key)]})


@router.get(
    "/{run_id}/events",
    summary="Stream a run's events",
    response_class=EventStream,
    responses={200: {"model": AnyEvent, "description": "The events that follow, up to `done`."}},
)
async def events(
    run_id: UUID,
    services: FromServices,
    caller: Caller,
    last_event_id: Annotated[str, Header(description="The id of the last event that you received.")] = "",
) -> EventStream:
    """Stream the run's events after `Last-Event-ID`; from the first one if that is missing or not a number.

    One `gap` event replaces events that were pruned.
    """
    key = RunKey(caller.tenant, str(run_id))
    await services.reader.record(key)  # 404 before the stream begins
    return EventStream(services.reader.follow_batches(key, after=_number(last_event_id)), services.acceptance.limits)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        return 0
    digits = text.lstrip("0") or "0"
    return int(digits) if len(digits) < _DIGITS else _LARGEST
