"""Chat completions protocol: `ModelRequest` to request body, response body or stream to `ModelReply`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from starling.core.errors import LLMConnectionError, LLMInvalidResponse, LLMServerError
from starling.core.json import JsonObject, as_count, as_items, as_object, as_text, canonical
from starling.core.llm import Message, ModelReply, ModelRequest, ModelToolCall, ResponseSchema, TokenUsage, ToolSpec
from starling.core.model_output.json_document import loads_object
from starling.core.model_output.reasoning_markers import with_markers
from starling.core.model_output.tool_arguments import loads_arguments
from starling.infra.fast_json import dumps
from starling.infra.llm.chat_model import excerpt, shortened
from starling.infra.llm.endpoint_capabilities import Dialect, Feature, schema_form
from starling.infra.llm.request_forms import schema_tool, strict_form, with_schema_in_prompt, with_tools_in_prompt

_CACHED = 4_096


class EncodingCache[T]:
    """Caches the JSON of recurring values by identity, since hashing a schema costs more than encoding it."""

    def __init__(self, encode: Callable[[T], object]) -> None:
        self._encode = encode
        self._cached: dict[int, tuple[T, bytes]] = {}

    def __call__(self, value: T) -> bytes:
        cached = self._cached.get(id(value))
        if cached is not None and cached[0] is value:
            return cached[1]
        if len(self._cached) >= _CACHED:
            self._cached.clear()
        encoded = dumps(self._encode(value))
        self._cached[id(value)] = (value, encoded)  # keeping a reference prevents reuse of the id
        return encoded


class RequestWriter:
    """Encodes the bodies of requests to one model."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._tool = EncodingCache(tool_definition)
        self._schema = EncodingCache(_json_schema)
        self._schema_tool = EncodingCache[ResponseSchema](lambda response: tool_definition(schema_tool(response)))

    def write(self, request: ModelRequest, dialect: Dialect, *, stream: bool) -> bytes:
        """Return the body of `request`, using only features of `dialect`."""
        if request.tools and Feature.TOOLS not in dialect:
            request = with_tools_in_prompt(request)
        form, messages = schema_form(dialect, request), request.messages
        if request.response is not None and form in (Feature.JSON_OBJECT, None):
            messages = with_schema_in_prompt(messages, request.response)
        body: dict[str, object] = {
            "model": self._model,
            "messages": orjson.Fragment(dumps([_message(message) for message in messages])),
        }
        if request.tools:
            body["tools"] = orjson.Fragment(b"[%s]" % b",".join([self._tool(tool) for tool in request.tools]))
        if request.response is not None:
            body |= self._demand(request.response, form)
        return orjson.dumps(body | _options(request, dialect, stream=stream))

    def _demand(self, response: ResponseSchema, form: Feature | None) -> dict[str, object]:
        """Return the parameters that ask for an answer by the schema."""
        match form:
            case Feature.JSON_SCHEMA:
                return {"response_format": orjson.Fragment(self._schema(response))}
            case Feature.SCHEMA_TOOL:
                choice = {"type": "function", "function": {"name": response.name}}
                return {"tools": [orjson.Fragment(self._schema_tool(response))], "tool_choice": choice}
            case Feature.JSON_OBJECT:
                return {"response_format": {"type": "json_object"}}
            case _:
                return {}


def read_reply(model: str, body: dict[str, Any]) -> ModelReply:
    """Return the reply in the body of a response without streaming.

    Raises LLMServerError if it contains an error object, LLMInvalidResponse if it is not a chat completion.
    """
    raise_error_object(model, body)
    choice = first_choice(body)
    message = as_object(choice.get("message"))
    if not message:
        raise LLMInvalidResponse(model, f"the answer has no choice with a message: {excerpt(dumps(body))}")
    calls = as_items(message.get("tool_calls"))
    return ModelReply(
        content=read_text(message),
        tool_calls=tuple([_read_call(model, as_object(call), index) for index, call in enumerate(calls)]),
        usage=read_usage(body.get("usage")),
        model=model,
        finish_reason=as_text(choice.get("finish_reason")) or "stop",
        reasoning=(reasoning := read_reasoning(message)).text,
        reasoning_field=reasoning.field,
    )


def raise_error_object(model: str, body: dict[str, Any]) -> None:
    """Raise LLMServerError if the body of a successful response contains an error."""
    error = body.get("error")
    if error:
        code = as_count(as_object(error).get("code"))
        status = code if 400 <= code < 600 else 500
        raise LLMServerError(model, f"the endpoint answered with an error: {error_text(body)}", status=status)


def error_text(body: dict[str, Any]) -> str:
    """Return the error message of a refusal, in any of the forms that endpoints use."""
    error = body.get("error") or body.get("detail") or body.get("message") or body
    text = as_object(error).get("message") or error
    if as_object(error).get("code") == "insufficient_quota":
        text = f"insufficient_quota: {text}"
    return shortened(text if isinstance(text, str) else dumps(text).decode())


def first_choice(body: dict[str, Any]) -> dict[str, Any]:
    """Return the first choice, or an empty object: the chunk with the token usage has none."""
    choices = as_items(body.get("choices"))
    return as_object(choices[0]) if choices else {}


def read_text(message: dict[str, Any]) -> str:
    """Return the text of a message or delta: a string, a list of parts, or the refusal."""
    content = message.get("content")
    parts = [as_text(as_object(part).get("text")) for part in as_items(content)]
    return as_text(content) or "".join(parts) or as_text(message.get("refusal"))


@dataclass(frozen=True, slots=True)
class FieldReasoning:
    """Reasoning in a member of a message, and the name of that member if the API wants it back in a tool loop."""

    text: str = ""
    field: str = ""


def read_reasoning(message: dict[str, Any]) -> FieldReasoning:
    """Return the reasoning of a message or delta. Endpoints that name it `reasoning` don't need it back."""
    if text := as_text(message.get("reasoning_content")):
        return FieldReasoning(text, "reasoning_content")
    if text := as_text(message.get("reasoning")):
        return FieldReasoning(text)
    parts = [as_object(part) for part in as_items(message.get("content"))]  # Mistral's have the type `thinking`
    inner = [as_object(item) for part in parts for item in as_items(part.get("thinking"))]
    return FieldReasoning("".join(as_text(item.get("text")) for item in inner))


def read_usage(usage: object) -> TokenUsage:
    """Return the token counts of an endpoint."""
    counted = as_object(usage)
    return TokenUsage(as_count(counted.get("prompt_tokens")), as_count(counted.get("completion_tokens")))


def tool_call(model: str, identity: str, name: str, arguments: object) -> ModelToolCall:
    """Return one call. Arguments that are not a JSON object are kept as text for the error message to the model."""
    if not name:
        raise LLMInvalidResponse(model, "a tool call has no tool name.")
    parsed = as_object(arguments)  # some endpoints send an object
    raw = arguments_text(parsed) if parsed else as_text(arguments)
    return ModelToolCall(identity, name, loads_arguments(raw), raw)


def arguments_text(arguments: JsonObject) -> str:
    """Return the JSON text of arguments, which may be nested too deeply for orjson."""
    try:
        return dumps(arguments).decode()
    except TypeError:
        return canonical(arguments)


def _read_call(model: str, call: dict[str, Any], index: int) -> ModelToolCall:
    function = as_object(call.get("function"))
    identity = as_text(call.get("id")) or f"call_{index}"
    return tool_call(model, identity, as_text(function.get("name")), function.get("arguments"))


def _message(message: Message) -> dict[str, object]:
    if message.tool_calls:
        calls = [_encode_call(call) for call in message.tool_calls]
        return {"role": message.role, "content": message.content or None, "tool_calls": calls} | _returned(message)
    if message.tool_call_id is not None:
        return {"role": message.role, "content": message.content, "tool_call_id": message.tool_call_id}
    return {"role": message.role, "content": message.content}


def _returned(message: Message) -> dict[str, object]:
    """Return the reasoning of a message as its API wants it."""
    reasoning = message.reasoning
    if reasoning is None:
        return {}
    if reasoning.field == "content":
        return {"content": with_markers(reasoning.text, message.content)}
    return {reasoning.field: reasoning.text}


def _encode_call(call: ModelToolCall) -> dict[str, object]:
    # Endpoints parse the arguments again and refuse the conversation if they are not JSON.
    arguments = "{}" if call.arguments is None else call.raw_arguments or dumps(call.arguments).decode()
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def tool_definition(tool: ToolSpec) -> dict[str, Any]:
    """Return a tool as the protocol describes it."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _json_schema(response: ResponseSchema) -> object:
    strict = strict_form(response.schema)
    schema = {"name": response.name, "schema": strict or response.schema, "strict": strict is not None}
    return {"type": "json_schema", "json_schema": schema}


def _options(request: ModelRequest, dialect: Dialect, *, stream: bool) -> dict[str, object]:
    options: dict[str, object] = {}
    if Feature.TEMPERATURE in dialect:
        options["temperature"] = request.temperature
    if request.max_tokens is not None:
        limit = "max_tokens" if Feature.TOKEN_LIMIT in dialect else "max_completion_tokens"
        options[limit] = request.max_tokens
    if stream:
        options["stream"] = True
        if Feature.STREAM_USAGE in dialect:
            options["stream_options"] = {"include_usage": True}
    return options


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
