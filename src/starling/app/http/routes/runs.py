"""Background runs: accept, list, show, and stream their events."""

import asyncio
from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated
from uuid import UUID

import orjson
from fastapi import APIRouter, Header, Query, Response
from pydantic import BaseModel, Field

from starling.app.http.authentication import require
from starling.app.http.dependencies import Caller, FromServices, IdempotencyKey, RunLister
from starling.app.http.event_stream import EventStream
from starling.app.http.problems import refusals
from starling.app.http.schemas import RUN_LOCATION, ClosedModel, Name, RunAccepted, RunBody, run_path
from starling.core.errors import InvalidRequestError
from starling.core.events.stream import AnyEvent
from starling.core.principal import Scope
from starling.core.run_document.document import RunDocument
from starling.core.runs import ForkRequest, RunStatus
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.documents import ALL_PARTS, Part
from starling.infra.postgres.runs.listing import PromptFilter, RunFilter, RunSummary

router = APIRouter(prefix="/v1/runs", tags=["runs"], responses=refusals(404, 503))

_LARGEST, _DIGITS = 2**63 - 1, 19

_OF_PARTS: dict[Part, tuple[str, ...]] = {
    "tasks": ("plans", "tasks", "notices", "builds", "logs"),
    "calls": ("plans", "tasks", "notices", "builds", "logs"),
    "prompts": ("plans", "tasks", "notices", "builds", "logs", "decisions", "left_out", "claims", "prompts"),
    "feedback": ("feedback",),
}
"""The fields of a document that come with each part; the parts complete the calls and the attempts of its tasks."""

_TASKS: frozenset[Part] = frozenset({"tasks"})
_LATER = frozenset(name for names in _OF_PARTS.values() for name in names)


class RunQuery(ClosedModel):
    """Filters of the list of runs."""

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
    all_tenants: bool = Field(
        False, description="The unfinished ones of all tenants. Needs the scope `admin`, without it `run`."
    )
    limit: int = Field(20, ge=1, le=200)


class DocumentQuery(ClosedModel):
    """What is returned of a run beside its state."""

    include: str = Field(
        "",
        pattern="^$|^(tasks|calls|prompts|feedback)(,(tasks|calls|prompts|feedback))*$",
        description="Parts, separated by commas: `tasks`, `calls`, `prompts`, `feedback`.",
    )

    def parts(self) -> frozenset[Part]:
        """Return the parts that are to be read: calls and prompts complete tasks."""
        named: frozenset[Part] = frozenset(part for part in ALL_PARTS if part in self.include.split(","))
        return named | _TASKS if named & {"calls", "prompts"} else named


class RunPage(BaseModel):
    """Runs, newest first. `next` is the value of `before` for the next page, null on the last page."""

    runs: Sequence[RunSummary]
    next: str | None


@router.post(
    "",
    status_code=202,
    summary="Start a run in the background",
    responses={202: {"headers": RUN_LOCATION}, **refusals(409, 422)},
)
async def begin(
    request: RunBody,
    response: Response,
    services: FromServices,
    caller: Caller,
    idempotency_key: IdempotencyKey = None,
) -> RunAccepted:
    """Accept a run. Its state is at `Location`, its events are at `/v1/runs/{id}/events`."""
    accepted = await services.runs.acceptance.accept(caller, request.request(), idempotency_key)
    response.headers["Location"] = run_path(accepted.key.id)
    return RunAccepted.of(accepted)


@router.post(
    "/{run_id}/fork",
    status_code=202,
    summary="Fork a run",
    responses={202: {"headers": RUN_LOCATION}, **refusals(409, 422)},
)
async def fork(
    run_id: UUID,
    request: ForkRequest,
    response: Response,
    services: FromServices,
    caller: Caller,
    idempotency_key: IdempotencyKey = None,
) -> RunAccepted:
    """Begin a new run with what an ended one had decided, on a branch of its own; what it inherits is not done again.

    409 `not_forkable`: the run has not ended, or what it decided is not kept.
    """
    accepted = await services.forks.accept(caller, str(run_id), request, idempotency_key)
    response.headers["Location"] = run_path(accepted.started.run_id)
    return RunAccepted.of(accepted)


@router.get("", summary="List runs", responses=refusals(422))
async def latest(services: FromServices, caller: RunLister, wanted: Annotated[RunQuery, Query()]) -> RunPage:
    """List runs, newest first. A `prompt` whose text is not stored is answered with 404."""
    require(caller, Scope.ADMIN if wanted.all_tenants else Scope.RUN)
    if wanted.all_tenants and wanted.status and wanted.status.terminal:
        raise InvalidRequestError(f"Runs with status {wanted.status} are listed for one tenant.", "Omit `all_tenants`.")
    before = str(wanted.before) if wanted.before else None
    prompt = None
    if wanted.prompt:
        digest = (await services.prompt_catalog.show(wanted.prompt)).hash
        prompt = PromptFilter(digest, await services.storage.epochs.pinning_prompt(digest))
    tenant = None if wanted.all_tenants else caller.tenant
    which = RunFilter(wanted.thread_id, wanted.status, before, wanted.ending, prompt)
    found = await services.runs.listing.latest(tenant, limit=wanted.limit + 1, which=which)
    shown, more = found[: wanted.limit], len(found) > wanted.limit
    return RunPage(runs=shown, next=shown[-1].run_id if more else None)


@router.get("/{run_id}", summary="Show a run", responses={200: {"model": RunDocument}, **refusals(422)})
async def show(
    run_id: UUID, services: FromServices, caller: Caller, wanted: Annotated[DocumentQuery, Query()]
) -> Response:
    """Return the status of a run, its open interrupts and, once it has ended, its result.

    `include` adds the fields of parts: `tasks` adds plans, tasks, notices, builds and logs; `calls` completes tool
    calls by what is known of their effects; `prompts` adds the calls of models and the wordings that these used;
    `feedback` adds what readers say of the run.
    """
    parts = wanted.parts()
    document = await services.runs.documents.read(RunKey(caller.tenant, str(run_id)), parts)
    shown = {name for part in parts for name in _OF_PARTS[part]}
    names = [*(one.name for one in fields(document)), "prompts"]
    body = {name: getattr(document, name) for name in names if name in shown or name not in _LATER}
    made = await asyncio.to_thread(orjson.dumps, body, option=orjson.OPT_UTC_Z)
    return Response(made, media_type="application/json")


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
    await services.runs.documents.row(key)  # 404 before the stream begins
    after = 0
    if last_event_id.isascii() and last_event_id.isdigit():
        after = int(last_event_id) if len(last_event_id) < _DIGITS else _LARGEST
    return EventStream(services.runs.reader.follow_batches(key, after=after), services.runs.acceptance.limits)
