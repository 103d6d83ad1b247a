"""OpenAI's chat API."""

from functools import partial

from fastapi import APIRouter, Request
from fastapi.responses import Response

from starling.app.http.chat_requests import CLIENT_GONE, STREAMED, SendingOf
from starling.app.http.dependencies import Caller, ChangeActor, FromServices
from starling.app.http.event_stream import RUN_ID, ChunkStream, unless_disconnected
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
    chats = services.chats
    turn = await chats.begin(caller, actor, body.asked(sending))
    cancel = partial(chats.cancel_unless_joined, turn)
    headers = {RUN_ID: turn.key.id}
    if body.stream:
        include_usage = bool(body.stream_options and body.stream_options.include_usage)
        sent = chunks(turn.key.id, chats.follow(caller, turn), body.model, include_usage=include_usage)
        stream = ChunkStream(sent, services.runs.acceptance.limits, on_disconnect=cancel)
        stream.headers.update(headers)
        return stream
    answer = await unless_disconnected(request.receive, chats.answer(caller, turn))
    if answer is None:
        await cancel()
        return CLIENT_GONE
    return Response(completion(answer, body.model), media_type="application/json", headers=headers)
