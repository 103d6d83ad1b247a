"""Bodies and events of the responses API."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from itertools import count
from typing import Any, Final, Literal
from uuid import UUID

from pydantic import BaseModel

from starling.app.openai.answers import ChatAnswer
from starling.app.openai.completions import Extension, created_at
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
_LAST_EVENT: Final = {"completed": "completed", "incomplete": "incomplete"}  # else `failed`
_PREFIX: Final = "resp_"


class OutputText(BaseModel):
    """A text."""

    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[dict[str, Any]]
    logprobs: list[dict[str, Any]]


class OutputMessage(BaseModel):
    """The answer of a run, or its question."""

    type: Literal["message"] = "message"
    id: str
    role: Literal["assistant"] = "assistant"
    status: Literal["in_progress", "completed", "incomplete"]
    content: list[OutputText]


class ResponseUsage(BaseModel):
    """What the run used, over all its calls of models."""

    input_tokens: int
    input_tokens_details: dict[str, int]
    output_tokens: int
    output_tokens_details: dict[str, int]
    total_tokens: int


class ResponseError(BaseModel):
    """Why a run failed."""

    code: str
    message: str


class OpenAIResponse(BaseModel):
    """A run as a response. `metadata` and `previous_response_id` are only in the answer to the request itself."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
    background: bool | None
    error: ResponseError | None
    incomplete_details: dict[str, str] | None
    instructions: str | None
    metadata: dict[str, Any]
    model: str
    output: list[OutputMessage]
    parallel_tool_calls: bool
    previous_response_id: str | None
    tool_choice: str
    tools: list[dict[str, Any]]
    text: dict[str, Any]
    usage: ResponseUsage | None
    starling: Extension | None


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
    failed = {"code": "server_error", "message": answer.text} if answer and shown == "failed" else None
    return {
        "id": response_id(run_id),
        "object": "response",
        "created_at": created_at(run_id),
        "status": shown,
        "background": None,
        "error": failed,
        "incomplete_details": {"reason": "max_output_tokens"} if shown == "incomplete" else None,
        "instructions": None,
        "metadata": {},
        "output": [_message(run_id, "completed", answer.text)] if answer else [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "tool_choice": "auto",
        "tools": [],
        "text": {"format": {"type": "text"}},
        "usage": _usage(answer) if answer else None,
        "starling": answer.extension if answer else None,
        **echoed,
    }


async def response_events(
    run_id: str, updates: AsyncGenerator[str | ChatAnswer], echoed: Mapping[str, Any]
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
            yield sent + event(f"response.{_LAST_EVENT.get(body['status'], 'failed')}", response=body)


type _Event = Callable[..., bytes]


def _numbered(number: "count[int]") -> _Event:
    def event(kind: str, **fields: object) -> bytes:
        data = dumps({"type": kind, "sequence_number": next(number), **fields})
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)

    return event


def _text_events(run_id: str, text: str, event: _Event) -> bytes:
    message, item = _message(run_id, "completed", text), {"output_index": 0, "item_id": _message_id(run_id)}
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


def _message(run_id: str, status: str, text: str) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "id": _message_id(run_id), "role": "assistant", "status": status, "content": [part]}


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
