"""OpenAI's chat API."""

from functools import partial

from fastapi import APIRouter, Request
from fastapi.responses import Response

from starling.app.http.chat_requests import STREAMED, SendingOf, answered
from starling.app.http.dependencies import Caller, ChangeActor, FromServices
from starling.app.http.problems import refusals
from starling.app.openai.completions import ChatCompletion, chunks, completion
from starling.app.openai.requests import ChatCompletionRequest

router = APIRouter(tags=["openai"], responses=refusals(404, 409, 422, 503))


@router.post(
    "/v1/chat/completions",
    summary="Complete a chat",
    response_class=Response,
    responses={200: {"model": ChatCompletion, "description": "The answer, or its stream.", **STREAMED}},
)
async def chat_completions(
    body: ChatCompletionRequest,
    request: Request,
    services: FromServices,
    caller: Caller,
    actor: ChangeActor,
    sending: SendingOf,
) -> Response:
    """Answer a conversation by a run, as OpenAI's API does. The run is cancelled if the client disconnects.

    Text comes once it is final; before, streams tell the progress as `reasoning_content`.
    """
    turn = await services.chats.begin(caller, actor, body.asked(sending))
    include_usage = bool(body.stream_options and body.stream_options.include_usage)
    stream = partial(chunks, turn.key.id, body.model, include_usage=include_usage)
    whole = partial(completion, body.model)
    return await answered(request, services, caller, turn, stream if body.stream else None, whole)
