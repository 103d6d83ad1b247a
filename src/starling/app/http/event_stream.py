"""Events as server-sent events: the id is the number, the data carries the same type."""

from collections.abc import AsyncIterator, Sequence
from typing import Final

from sse_starlette import EventSourceResponse, ServerSentEvent

from starling.core.events import StoredEvent
from starling.core.settings import Limits
from starling.infra.fast_json import dumps

RUN_ID: Final = "X-Run-Id"  # the header of a stream that no `run_started` has to begin


def event_stream(batches: AsyncIterator[Sequence[StoredEvent]], limits: Limits) -> EventSourceResponse:
    """Return the streaming response; a reader that takes nothing for `stream_write_seconds` is cut off.

    The socket keeps the same limit, and drops what such a reader never took.
    """
    return EventSourceResponse(
        (b"".join(map(_sent, batch)) async for batch in batches),
        ping=limits.stream_ping_seconds,
        send_timeout=limits.stream_write_seconds,
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


def _sent(event: StoredEvent) -> bytes:
    return ServerSentEvent(data=dumps(event.data).decode(), event=event.type, id=str(event.seq), sep="\n").encode()
