"""OpenAI's responses API: a response is a run."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import AfterValidator

from starling.app.http.chat_requests import STREAMED, SendingOf, answered
from starling.app.http.dependencies import Caller, ChangeActor, FromServices
from starling.app.http.event_stream import RUN_ID
from starling.app.http.problems import refusals
from starling.app.openai.chat_runs import MAIN_MODEL
from starling.app.openai.requests import ResponseRequest, refused
from starling.app.openai.responses import OpenAIResponse, response_body, response_events, run_of_response
from starling.app.runs.completion import ended
from starling.app.services import Services
from starling.core.errors import NotFoundError
from starling.core.runs import RunStatus
from starling.infra.fast_json import dumps
from starling.infra.postgres.runs.acceptance import RunKey

type _NoStream = Annotated[bool, AfterValidator(refused), Query(description="Not supported.")]

_CANCEL_SECONDS: Final = 5.0

router = APIRouter(prefix="/v1/responses", tags=["openai"], responses=refusals(404, 503))


@router.post(
    "",
    summary="Create a response",
    response_class=Response,
    responses={
        200: {"model": OpenAIResponse, "description": "The response, or its stream.", **STREAMED},
        **refusals(409, 422),
    },
)
async def create(
    body: ResponseRequest,
    request: Request,
    services: FromServices,
    caller: Caller,
    actor: ChangeActor,
    sending: SendingOf,
) -> Response:
    """Answer by a run, as OpenAI's API does. It is cancelled if the client disconnects, unless `background` is set."""
    previous = run_of_response(body.previous_response_id) if body.previous_response_id else None
    turn = await services.chats.begin(caller, actor, body.asked(sending, previous))
    echoed = {name: getattr(body, name) for name in ("model", "instructions", "previous_response_id", "background")}
    echoed["metadata"] = body.metadata.model_dump(exclude_none=True) if body.metadata else {}
    if body.background and not body.stream and turn.events is not None:
        return _json(response_body(turn.key.id, RunStatus.QUEUED, None, echoed), {RUN_ID: turn.key.id})
    stream = partial(response_events, turn.key.id, echoed)
    return await answered(
        request,
        services,
        caller,
        turn,
        stream if body.stream else None,
        lambda answer: dumps(response_body(answer.run_id, answer.status, answer, echoed)),
    )


@router.get("/{response_id}", summary="Show a response", response_model=OpenAIResponse)
async def show(response_id: str, services: FromServices, caller: Caller, stream: _NoStream = False) -> Response:
    """Return a run as a response; one that waits is complete, and its text says what it waits for."""
    with _run_of(caller.tenant, response_id) as key:
        return _json(await _shown(services, key))


@router.post("/{response_id}/cancel", summary="Cancel a response", response_model=OpenAIResponse)
async def cancel(response_id: str, services: FromServices, caller: Caller) -> Response:
    """Cancel a run. It ends at once, or within about a second where a worker executes it."""
    with _run_of(caller.tenant, response_id) as key:
        if not (await services.runs.cancellation.cancel(key)).terminal:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CANCEL_SECONDS):
                    await ended(services.runs.documents, key, services.runs.reader.follow_batches(key))
        return _json(await _shown(services, key))


@contextmanager
def _run_of(tenant: str, response_id: str) -> Generator[RunKey]:
    """Give the run of a response. Raises NotFoundError, also where the block finds no such run."""
    if run := run_of_response(response_id):
        with suppress(NotFoundError):
            yield RunKey(tenant, run)
            return
    raise NotFoundError("response", response_id, "A response's id is `resp_` and 32 hex digits.")


async def _shown(services: Services, key: RunKey) -> dict[str, Any]:
    row = await services.runs.documents.row(key)
    answer = await services.chats.state(key, row)
    echoed = {"model": row.config.get("agent") or MAIN_MODEL, "instructions": row.config.get("instructions")}
    return response_body(key.id, answer.status if answer else row.status, answer, echoed)


def _json(body: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    return Response(dumps(body), media_type="application/json", headers=headers)
