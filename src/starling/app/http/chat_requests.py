"""What requests of OpenAI's clients have beside their bodies."""

import hashlib
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Annotated, Any, Final

from fastapi import Depends, Header, Request
from fastapi.responses import Response

from starling.app.http.dependencies import Caller, IdempotencyKey
from starling.app.http.event_stream import RUN_ID, ChunkStream, unless_disconnected
from starling.app.openai.answers import ChatAnswer
from starling.app.openai.chat_runs import ChatTurn, Updates
from starling.app.openai.requests import Sending
from starling.app.services import Services
from starling.app.threads import ThreadName
from starling.infra.postgres.runs import acceptance

STREAMED: Final[dict[str, Any]] = {
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
    "headers": {"X-Run-Id": {"description": "The run's id.", "schema": {"type": "string"}}},
}


async def _sending(
    request: Request,
    caller: Caller,
    idempotency_key: IdempotencyKey = None,
    x_thread_id: Annotated[
        ThreadName | None, Header(description="The thread of the conversation; one is found or begun without it.")
    ] = None,
    x_stainless_retry_count: Annotated[
        str, Header(description="How often the client has sent the same request before.", max_length=20)
    ] = "",
) -> Sending:
    """Return the request's idempotency key, of which an equal body has an equal one, and its thread."""
    body = await request.body()
    parts = (caller.maker.encode(), request.url.path.encode(), (x_thread_id or "").encode(), body)
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()
    retried = x_stainless_retry_count.isdigit() and int(x_stainless_retry_count) > 0
    key = acceptance.IdempotencyKey(
        idempotency_key or f"chat {digest}", digest, replaces=not retried and idempotency_key is None
    )
    return Sending(key, x_thread_id, retried=retried)


async def answered(
    request: Request,
    services: Services,
    caller: Caller,
    turn: ChatTurn,
    stream: Callable[[Updates], AsyncGenerator[bytes]] | None,
    whole: Callable[[ChatAnswer], bytes],
) -> Response:
    """Answer a request by its stream, or whole where it wants none; the run of a client that disconnects is cancelled.

    Not that of a response in the background.
    """
    chats, headers = services.chats, {RUN_ID: turn.key.id}
    if stream:
        sent = stream(chats.follow(caller, turn))
        cancel = partial(chats.cancel_unless_joined, turn)
        response = ChunkStream(sent, services.runs.acceptance.limits, on_disconnect=cancel)
        response.headers.update(headers)
        return response
    answer = await unless_disconnected(request.receive, chats.answer(caller, turn))
    if answer is None:
        await chats.cancel_unless_joined(turn)
        return Response(status_code=499)  # which nobody reads
    return Response(whole(answer), media_type="application/json", headers=headers)


type SendingOf = Annotated[Sending, Depends(_sending)]
