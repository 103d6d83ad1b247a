"""The Responses API of the model server: requests in the form of chat completions, and answers as responses and events.

Shapes as in OpenAI's API reference; `openai.types.responses` validates them in the tests of this module.
"""

from collections.abc import Iterator
from typing import Any

from tests.support.model_script import Answer, Body, parts

_PARAMETERS = ("model", "temperature", "stream", "store")


def chat_body(body: Body) -> Body:
    """Return the chat completions request that says the same, for scripts."""
    chat: Body = {name: body[name] for name in _PARAMETERS if name in body}
    chat["messages"] = [_message(item) for item in body["input"]]
    if "max_output_tokens" in body:
        chat["max_tokens"] = body["max_output_tokens"]
    if "tools" in body:
        chat["tools"] = [{"type": "function", "function": _function(tool)} for tool in body["tools"]]
    if isinstance(choice := body.get("tool_choice"), dict):
        chat["tool_choice"] = {"type": "function", "function": {"name": choice["name"]}}
    if (wanted := body.get("text", {}).get("format", {})).get("type") == "json_schema":
        schema = {name: wanted[name] for name in ("name", "schema", "strict") if name in wanted}
        chat["response_format"] = {"type": "json_schema", "json_schema": schema}
    return chat


def response(body: Body, answer: Answer) -> Body:
    """Return the whole answer."""
    chat = list(parts({**body, "stream_options": {}}, answer))
    text = "".join(_delta(part).get("content", "") for part in chat)
    calls = list(_calls(chat))
    items: list[Body] = [_text_item(text)] if text or not calls else []
    items += [_call_item(call["id"], call["name"], call["arguments"]) for call in calls]
    cut = answer.finish_reason == "length"
    tokens_in, tokens_out = answer.usage
    return _frame(body) | {
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": items,
        "usage": {
            "input_tokens": tokens_in,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": tokens_out,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": tokens_in + tokens_out,
        },
    }


def events(body: Body, answer: Answer) -> Iterator[Body]:
    """Yield the events of a stream: the text by words, each call in two parts, and the whole response last."""
    for number, event in enumerate(_events(body, answer)):
        yield event | {"sequence_number": number}


def _events(body: Body, answer: Answer) -> Iterator[Body]:
    whole = response(body, answer)
    for kind in ("response.created", "response.in_progress"):
        yield {"type": kind, "response": _frame(body) | {"status": "in_progress", "output": []}}
    pieces = [text for part in parts(body, answer) if (text := _delta(part).get("content"))]
    for index, item in enumerate(whole["output"]):
        yield from _text_events(item, index, pieces) if item["type"] == "message" else _call_events(item, index)
    yield {"type": f"response.{whole['status']}", "response": whole}


def _text_events(item: Body, index: int, pieces: list[str]) -> Iterator[Body]:
    place: Body = {"item_id": item["id"], "output_index": index, "content_index": 0}
    empty: Body = {"type": "output_text", "text": "", "annotations": []}
    begun: Body = {**item, "status": "in_progress", "content": []}
    yield {"type": "response.output_item.added", "output_index": index, "item": begun}
    yield {"type": "response.content_part.added", **place, "part": empty}
    for piece in pieces:
        yield {"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []}
    text = item["content"][0]["text"]
    yield {"type": "response.output_text.done", **place, "text": text, "logprobs": []}
    yield {"type": "response.content_part.done", **place, "part": item["content"][0]}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _call_events(item: Body, index: int) -> Iterator[Body]:
    place: Body = {"item_id": item["id"], "output_index": index}
    arguments = item["arguments"]
    begun: Body = {**item, "status": "in_progress", "arguments": ""}
    yield {"type": "response.output_item.added", "output_index": index, "item": begun}
    for piece in (arguments[: len(arguments) // 2], arguments[len(arguments) // 2 :]):
        yield {"type": "response.function_call_arguments.delta", **place, "delta": piece}
    yield {
        "type": "response.function_call_arguments.done", **place, "name": item["name"], "arguments": arguments,
    }  # fmt: skip
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _frame(body: Body) -> Body:
    return {
        "id": "resp_1", "object": "response", "created_at": 0, "model": body["model"], "error": None,
        "incomplete_details": None, "instructions": None, "metadata": {}, "parallel_tool_calls": True,
        "temperature": body.get("temperature"), "tool_choice": "auto", "tools": [], "top_p": 1.0,
    }  # fmt: skip


def _text_item(text: str) -> Body:
    content: list[Body] = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": content}


def _call_item(identity: str, name: str, arguments: str) -> Body:
    return {
        "type": "function_call", "id": f"fc_{identity}", "call_id": identity, "name": name, "arguments": arguments,
        "status": "completed",
    }  # fmt: skip


def _delta(part: Body) -> dict[str, Any]:
    return part["choices"][0]["delta"] if part["choices"] else {}


def _calls(chat: list[Body]) -> Iterator[dict[str, str]]:
    calls: dict[int, dict[str, str]] = {}
    for part in chat:
        for piece in _delta(part).get("tool_calls", ()):
            call = calls.setdefault(piece["index"], {"id": piece.get("id", ""), "name": "", "arguments": ""})
            call["name"] += piece["function"].get("name", "")
            call["arguments"] += piece["function"]["arguments"]
    yield from calls.values()


def _message(item: Body) -> Body:
    match item.get("type", "message"):
        case "function_call":
            function = {"name": item["name"], "arguments": item["arguments"]}
            call = {"id": item["call_id"], "type": "function", "function": function}
            return {"role": "assistant", "content": None, "tool_calls": [call]}
        case "function_call_output":
            return {"role": "tool", "content": item["output"], "tool_call_id": item["call_id"]}
        case "message":
            return {"role": item["role"], "content": _text(item["content"])}
        case other:
            raise ValueError(f"an input item of type {other}")


def _text(content: str | list[Body]) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _function(tool: Body) -> Body:
    assert tool["type"] == "function"
    return {name: tool[name] for name in ("name", "description", "parameters") if name in tool}
