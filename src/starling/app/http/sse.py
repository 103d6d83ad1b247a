"""Events as server-sent events: the id is the number, the data carries the same type."""

import json
from collections.abc import AsyncIterator, Sequence

from sse_starlette import EventSourceResponse, ServerSentEvent

from starling.core.events import StoredEvent

_PING_SECONDS = 15
_WRITE_SECONDS = 30.0


def event_stream(batches: AsyncIterator[Sequence[StoredEvent]]) -> EventSourceResponse:
    """Return the streaming response; a reader that takes nothing for 30 s is cut off."""
    return EventSourceResponse(
        (b"".join(map(_sent, batch)) async for batch in batches),
        ping=_PING_SECONDS,
        send_timeout=_WRITE_SECONDS,
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


def _sent(event: StoredEvent) -> bytes:
    data = json.dumps(event.data, ensure_ascii=False, separators=(",", ":"))
    return ServerSentEvent(data=data, event=event.type, id=str(event.seq), sep="\n").encode()
