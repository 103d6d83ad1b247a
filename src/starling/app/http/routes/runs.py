"""Reading runs."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Header
from sse_starlette import EventSourceResponse

from starling.app.http.api import Caller, FromStore
from starling.app.http.problems import Problem
from starling.app.http.sse import event_stream
from starling.infra.postgres.runs import RunKey

router = APIRouter(prefix="/v1/runs", tags=["runs"], responses={404: {"model": Problem}})

_LARGEST = 2**63 - 1


@router.get(
    "/{run_id}/events",
    summary="Read a run's events, from any point on",
    response_class=EventSourceResponse,
    responses={200: {"content": {"text/event-stream": {}}, "description": "The events that follow, up to `done`."}},
)
async def events(
    run_id: UUID,
    store: FromStore,
    caller: Caller,
    last_event_id: Annotated[str, Header(description="The id of the last event that you have.")] = "",
) -> EventSourceResponse:
    """Stream the run's events after `Last-Event-ID`, from the first one without it or where it is no number."""
    key = RunKey(caller.tenant, str(run_id))
    await store.reader.record(key)  # 404 before the stream begins
    return event_stream(store.reader.following(key, after=_number(last_event_id)))


def _number(text: str) -> int:
    return min(int(text), _LARGEST) if text.isascii() and text.isdigit() and len(text) < 32 else 0
