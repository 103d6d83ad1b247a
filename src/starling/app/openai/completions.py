"""Bodies and chunks of the chat API."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final, Literal

from pydantic import BaseModel

from starling.app.openai.answers import ChatAnswer
from starling.core.events.run_events import Usage
from starling.core.runs import RunStatus
from starling.infra.fast_json import dumps

DONE: Final = b"data: [DONE]\n\n"


class ChatCompletion(BaseModel):
    """An answer of the chat API; `starling` has the run, its sources, what it changed and what is missing."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[dict[str, Any]]
    usage: dict[str, int]
    starling: dict[str, Any]


def completion(model: str, answer: ChatAnswer) -> bytes:
    """Return a whole answer as JSON."""
    message = {"role": "assistant", "content": answer.text, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(answer)}
    head = _head("chat.completion", answer.run_id, model)
    return dumps({**head, "choices": [choice], "usage": _counts(answer.usage), "starling": answer.extension})


async def chunks(
    run_id: str, model: str, updates: AsyncGenerator[str | ChatAnswer], *, include_usage: bool
) -> AsyncGenerator[bytes]:
    """Yield an answer as the lines of a stream: progress as reasoning, the text once it is final, and the end."""
    head = _head("chat.completion.chunk", run_id, model)
    if include_usage:
        head["usage"] = None
    yield _chunk(head, {"role": "assistant", "content": ""})
    async with aclosing(updates):
        async for update in updates:
            if isinstance(update, str):
                yield _chunk(head, {"reasoning_content": f"{update}\n"})
            else:
                last = _chunk(head, {}, _finish_reason(update), starling=update.extension)
                if include_usage:
                    last += b"data: %b\n\n" % dumps({**head, "choices": [], "usage": _counts(update.usage)})
                yield _chunk(head, {"content": update.text}) + last
    yield DONE


def created_at(run_id: str) -> int:
    """Return when a run was accepted, in seconds since the epoch, by its id."""
    return int(run_id.replace("-", "")[:12], 16) // 1_000


def _head(kind: str, run_id: str, model: str) -> dict[str, Any]:
    name = f"chatcmpl-{run_id.replace('-', '')}"
    return {"id": name, "object": kind, "created": created_at(run_id), "model": model}


def _chunk(head: Mapping[str, Any], delta: Mapping[str, str], reason: str | None = None, **more: object) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    return b"data: %b\n\n" % dumps({**head, "choices": [choice], **more})


def _finish_reason(answer: ChatAnswer) -> str:
    return "length" if answer.status is RunStatus.BUDGET_EXHAUSTED else "stop"


def _counts(usage: Usage) -> dict[str, int]:
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    return dict(zip(names, (usage.input_tokens, usage.output_tokens, usage.tokens), strict=True))
