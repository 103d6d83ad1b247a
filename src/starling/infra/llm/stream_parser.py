"""Parser for streamed answers (server-sent events)."""

from dataclasses import dataclass
from typing import Any

from starling.core.errors import LLMConnectionError, LLMInvalidResponse
from starling.core.llm import ModelReply, TokenUsage
from starling.infra.llm.chat_completions import (
    FieldReasoning,
    arguments_text,
    first_choice,
    raise_error_object,
    read_reasoning,
    read_text,
    read_usage,
    tool_call,
)
from starling.infra.llm.error_mapping import excerpt
from starling.infra.llm.lenient_json import as_count, as_items, as_object, as_text, loads_object

_BYTES_LIMIT = 16 * 1024 * 1024


@dataclass(slots=True)
class _CallParts:
    identity: str
    name: str
    arguments: str

    def is_another(self, identity: str, name: str, arguments: str) -> bool:
        """Whether this part belongs to another call: some endpoints give all calls the index 0, and no ids."""
        if identity and name:
            return identity != self.identity
        return bool(name and arguments.strip() and loads_object(self.arguments) is not None)


class StreamedAnswer:
    """Parses the bytes of a stream into pieces of text and, at the end, the complete reply."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._rest = b""
        self._text: list[str] = []
        self._reasoning: list[FieldReasoning] = []
        self._calls: list[_CallParts] = []
        self._current: dict[int, _CallParts] = {}  # by the endpoint's index
        self._usage = TokenUsage()
        self._finish_reason = ""
        self._bytes = 0
        self.done = False

    def feed(self, data: bytes) -> list[str]:
        """Return the pieces of text in `data`. Raises LLMInvalidResponse, or LLMServerError for an error event."""
        self._bytes += len(data)
        if self._bytes > _BYTES_LIMIT:
            raise LLMInvalidResponse(self._model, f"the stream is longer than {_BYTES_LIMIT} bytes.")
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [text for line in lines if (text := self._line(line))]

    def reply(self) -> ModelReply:
        """Return the complete answer. Raises LLMConnectionError if the stream ended early."""
        self._line(self._rest)
        if not self.done and not self._finish_reason:
            raise LLMConnectionError(self._model, "the stream ended before the answer was complete.")
        if not (self._finish_reason or self._text or self._calls or self._reasoning):
            raise LLMInvalidResponse(self._model, "the stream contained no answer.")
        return ModelReply(
            content="".join(self._text),
            tool_calls=tuple(tool_call(self._model, call.identity, call.name, call.arguments) for call in self._calls),
            usage=self._usage,
            model=self._model,
            finish_reason=self._finish_reason or "stop",
            reasoning="".join(part.text for part in self._reasoning),
            reasoning_field=self._reasoning[0].field if self._reasoning else "",
        )

    def _line(self, line: bytes) -> str:
        if not line.startswith(b"data:"):  # comments, event names and ids are not used
            return ""
        data = line[5:].strip()
        if data == b"[DONE]":
            self.done = True
            return ""
        chunk = loads_object(data)
        if chunk is None:
            raise LLMInvalidResponse(self._model, f"a stream event is not a JSON object: {excerpt(data)}")
        return self._chunk(chunk)

    def _chunk(self, chunk: dict[str, Any]) -> str:
        raise_error_object(self._model, chunk)
        if chunk.get("usage"):
            self._usage = read_usage(chunk["usage"])
        choice = first_choice(chunk)
        self._finish_reason = as_text(choice.get("finish_reason")) or self._finish_reason
        delta = as_object(choice.get("delta"))
        for position, part in enumerate(as_items(delta.get("tool_calls"))):
            self._call_part(as_object(part), position)
        if (reasoning := read_reasoning(delta)).text:
            self._reasoning.append(reasoning)
        text = read_text(delta)
        if text:
            self._text.append(text)
        return text

    def _call_part(self, part: dict[str, Any], position: int) -> None:
        index = as_count(part.get("index", position))
        function = as_object(part.get("function"))
        identity, name, written = as_text(part.get("id")), as_text(function.get("name")), function.get("arguments")
        arguments = as_text(written) or (arguments_text(as_object(written)) if written else "")
        call = self._current.get(index)
        if call is None or call.is_another(identity, name, arguments):
            call = self._current[index] = _CallParts(identity or f"call_{len(self._calls)}", name, "")
            self._calls.append(call)
        elif not call.name:
            call.name = name
        call.arguments += arguments
