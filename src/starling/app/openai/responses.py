"""Bodies and events of the responses API."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from itertools import count
from typing import Any, Final, Literal
from uuid import UUID

from pydantic import BaseModel

from starling.app.openai.answers import ChatAnswer
from starling.app.openai.completions import created_at
from starling.core.runs import RunStatus
from starling.infra.fast_json import dumps

_STATUS: Final[Mapping[RunStatus, str]] = {
    RunStatus.QUEUED: "queued",
    RunStatus.RUNNING: "in_progress",
    RunStatus.WAITING: "completed",  # with what the run asks as its text
    RunStatus.SUCCEEDED: "completed",
    RunStatus.CANCELLED: "cancelled",
    RunStatus.BUDGET_EXHAUSTED: "incomplete",
    RunStatus.FAILED: "failed",
    RunStatus.PARKED: "failed",
}
_PREFIX: Final = "resp_"


class OpenAIResponse(BaseModel):
    """A run as a response. `metadata` and `previous_response_id` are only in the answer to the request itself."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
    background: bool | None = None
    error: dict[str, str] | None = None
    incomplete_details: dict[str, str] | None = None
    instructions: str | None = None
    metadata: dict[str, Any] = {}
    model: str
    output: list[dict[str, Any]] = []
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    tool_choice: str = "auto"
    tools: list[dict[str, Any]] = []
    text: dict[str, Any] = {"format": {"type": "text"}}
    usage: dict[str, Any] | None = None
    starling: dict[str, Any] | None = None


def response_id(run_id: str) -> str:
    """Return the id of a run's response."""
    return f"{_PREFIX}{run_id.replace('-', '')}"


def run_of_response(response: str) -> str:
    """Return the run that the id of a response names, empty where it has another form."""
    try:
        return str(UUID(response.removeprefix(_PREFIX))) if response.startswith(_PREFIX) else ""
    except ValueError:
        return ""


def response_body(
    run_id: str, status: RunStatus, answer: ChatAnswer | None, echoed: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a run as a response; `echoed` are the fields that are as they were asked for."""
    shown = _STATUS[status]
    known: dict[str, Any] = {"id": response_id(run_id), "created_at": created_at(run_id), "status": shown, **echoed}
    if answer:
        known |= {"usage": _usage(answer), "starling": answer.extension}
        known["output"] = [_message(run_id, answer.text)]
    if answer and shown == "failed":
        known["error"] = {"code": "server_error", "message": answer.text}
    if shown == "incomplete":
        known["incomplete_details"] = {"reason": "max_output_tokens"}
    return OpenAIResponse.model_validate(known).model_dump()


async def response_events(
    run_id: str, echoed: Mapping[str, Any], updates: AsyncGenerator[str | ChatAnswer]
) -> AsyncGenerator[bytes]:
    """Yield a response as semantic events: its text as one delta once it is final; before, progress as comments."""
    number = count()
    begun = response_body(run_id, RunStatus.RUNNING, None, echoed)
    event = _numbered(number)
    yield event("response.created", response=begun) + event("response.in_progress", response=begun)
    async with aclosing(updates):
        async for update in updates:
            if isinstance(update, str):
                yield "".join(f": {line}\n" for line in update.split("\n")).encode() + b"\n"
                continue
            sent = _text_events(run_id, update.text, event)
            body = response_body(run_id, update.status, update, echoed)
            end = body["status"] if body["status"] in ("completed", "incomplete") else "failed"
            yield sent + event(f"response.{end}", response=body)


type _Event = Callable[..., bytes]


def _numbered(number: "count[int]") -> _Event:
    def event(kind: str, **fields: object) -> bytes:
        data = dumps({"type": kind, "sequence_number": next(number), **fields})
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)

    return event


def _text_events(run_id: str, text: str, event: _Event) -> bytes:
    message, item = _message(run_id, text), {"output_index": 0, "item_id": _message_id(run_id)}
    place, part = {**item, "content_index": 0}, message["content"][0]
    empty: dict[str, Any] = {**message, "status": "in_progress", "content": []}
    sent = (
        event("response.output_item.added", output_index=0, item=empty),
        event("response.content_part.added", **place, part={**part, "text": ""}),
        event("response.output_text.delta", **place, delta=text, logprobs=[]),
        event("response.output_text.done", **place, text=text, logprobs=[]),
        event("response.content_part.done", **place, part=part),
        event("response.output_item.done", output_index=0, item=message),
    )
    return b"".join(sent)


def _message(run_id: str, text: str) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "id": _message_id(run_id), "role": "assistant", "status": "completed", "content": [part]}


def _message_id(run_id: str) -> str:
    return f"msg_{run_id.replace('-', '')}"


def _usage(answer: ChatAnswer) -> dict[str, Any]:
    return {
        "input_tokens": answer.usage.input_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": answer.usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": answer.usage.tokens,
    }
