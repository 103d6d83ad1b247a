"""What the model server answers: a script of rules, and the answers in the form of chat completions."""

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import orjson

type Body = dict[str, Any]
type Responder = Callable[[Body], Awaitable["Answer"]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server does with one request."""

    content: str = ""
    tool_calls: Sequence[Mapping[str, Any]] = ()  # {"name", "arguments": object or text, "id"?}
    reasoning: str = ""  # sent as `reasoning_content`, in a stream before the text
    finish_reason: str = ""
    usage: Sequence[int] = (11, 7)  # tokens in, tokens out; empty: the endpoint reports none
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: str | None = None  # sent as it is, instead of a completion
    content_type: str = "application/json"  # of `body`
    hold: str = ""  # the gate that this answer waits at
    hold_after: int = 0  # parts of a stream that are sent before the gate
    cut_after: int | None = None  # parts (of a stream) or bytes after which the connection is cut
    part_seconds: float = 0.0  # between the parts of a stream


@dataclass(frozen=True, slots=True)
class When:
    """Which requests a rule is for; what isn't set fits all."""

    contains: str = ""  # in any message
    last_contains: str = ""  # in the last message
    schema: str = ""  # name of the response schema
    tool: str = ""  # a tool on offer
    model: str = ""
    stream: bool | None = None
    nth: int | None = None  # only the nth request that fits all else, from 1

    def fits(self, body: Body) -> bool:
        texts = [str(message.get("content") or "") for message in body["messages"]]
        return (
            any(self.contains in text for text in texts)
            and self.last_contains in texts[-1]
            and self.schema in ("", schema_name(body))
            and self.tool in ("", *(tool["function"]["name"] for tool in body.get("tools", ())))
            and self.model in ("", body["model"])
            and self.stream in (None, body.get("stream", False))
        )


@dataclass(frozen=True, slots=True)
class Rule:
    answer: Answer
    when: When = When()


async def no_rule(_: Body) -> Answer:
    """Answer with an error."""
    return Answer(status=404, body='{"error": {"message": "no rule of the script fits this request"}}')


class Script:
    """Answers each request by the first rule that fits, or else as `otherwise` does."""

    def __init__(self, *rules: Rule, otherwise: Responder = no_rule) -> None:
        self._rules, self._otherwise = rules, otherwise
        self._fitted = [0] * len(rules)

    @classmethod
    def read(cls, file: Path, otherwise: Responder = no_rule) -> Self:
        rules: list[dict[str, Any]] = json.loads(file.read_text("utf-8"))
        return cls(
            *(Rule(Answer(**rule["answer"]), When(**rule.get("when", {}))) for rule in rules), otherwise=otherwise
        )

    async def __call__(self, body: Body) -> Answer:
        for index, rule in enumerate(self._rules):
            if not rule.when.fits(body):
                continue
            self._fitted[index] += 1
            if rule.when.nth in (None, self._fitted[index]):
                return rule.answer
        return await self._otherwise(body)


def schema_name(body: Body) -> str:
    """Return the name of the response schema that a request carries."""
    return body.get("response_format", {}).get("json_schema", {}).get("name", "")


def _calls(answer: Answer) -> list[Body]:
    calls: list[Body] = []
    for index, call in enumerate(answer.tool_calls):
        arguments = call["arguments"]
        text = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
        function = {"name": call["name"], "arguments": text}
        calls.append({"id": call.get("id") or f"call_{index}", "type": "function", "function": function})
    return calls


def _finish(answer: Answer) -> str:
    return answer.finish_reason or ("tool_calls" if answer.tool_calls else "stop")


def _usage(answer: Answer) -> dict[str, int]:
    tokens_in, tokens_out = answer.usage
    return {"prompt_tokens": tokens_in, "completion_tokens": tokens_out, "total_tokens": tokens_in + tokens_out}


def completion(body: Body, answer: Answer) -> Body:
    message: Body = {"role": "assistant", "content": answer.content or None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.tool_calls:
        message["tool_calls"] = _calls(answer)
    choice = {"index": 0, "message": message, "finish_reason": _finish(answer)}
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": body["model"],
        "choices": [choice], **({"usage": _usage(answer)} if answer.usage else {}),
    }  # fmt: skip


def parts(body: Body, answer: Answer) -> Iterator[Body]:
    """Give the chunks of a stream: the text by words, each call in three, the end, and usage if asked for."""
    frame: Body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": body["model"]}

    def part(delta: Body, finish: str | None = None) -> Body:
        return {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    for word in re.findall(r"\S+\s*|\s+", answer.reasoning):
        yield part({"reasoning_content": word})
    for word in re.findall(r"\S+\s*|\s+", answer.content):
        yield part({"content": word})
    for index, call in enumerate(_calls(answer)):
        arguments = call["function"]["arguments"]
        half = len(arguments) // 2
        yield part({"tool_calls": [{**call, "index": index, "function": {**call["function"], "arguments": ""}}]})
        for piece in (arguments[:half], arguments[half:]):
            yield part({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield part({}, _finish(answer))
    if answer.usage and body.get("stream_options", {}).get("include_usage"):
        yield {**frame, "choices": [], "usage": _usage(answer)}
