"""Models of all other providers, through LangChain. Imported only if one is configured: the import is slow."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

from langchain.chat_models import init_chat_model
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from pydantic import SecretStr, ValidationError

from starling.core.errors import (
    ConfigurationError,
    LLMConnectionError,
    LLMInvalidResponse,
    LLMServerError,
    LLMTimeout,
    ModelError,
)
from starling.core.json import as_object, as_text
from starling.core.llm import (
    Message,
    ModelReply,
    ModelRequest,
    ModelToolCall,
    ResponseSchema,
    TextDelta,
    TokenUsage,
)
from starling.core.model_output.tool_arguments import loads_arguments
from starling.infra.fast_json import dumps
from starling.infra.llm.chat_completions import arguments_text, tool_definition
from starling.infra.llm.chat_model import (
    ModelName,
    ReplyStream,
    checked_reply,
    report_failed_attempt,
    shortened,
    status_failure,
)
from starling.infra.llm.endpoint_capabilities import (
    Dialect,
    EndpointFeatures,
    Feature,
    FeatureAttempt,
    schema_form,
    used_features,
)
from starling.infra.llm.request_forms import (
    answer_of_schema_tool,
    schema_tool,
    with_schema_in_prompt,
    with_tools_in_prompt,
)
from starling.infra.tracing.spans import trace_model_requests

# Builds the provider's model for a temperature, None for its default, and a token limit: LangChain's models are
# constructed with them.
type Build = Callable[[float | None, int | None], BaseChatModel]

# Base classes of connection errors in providers' packages and their HTTP libraries.
_CONNECTION_ERRORS = frozenset({"OSError", "TransportError", "ClientConnectionError", "APIConnectionError"})
_KEYS = ("_API_KEY", "_API_TOKEN")  # suffixes of the variables with keys
# Features that are omitted, or asked for in another way, once they were refused.
_DIALECT = frozenset({Feature.TEMPERATURE, Feature.TOOLS, Feature.JSON_SCHEMA, Feature.SCHEMA_TOOL})
_SCHEMA_FORMS = frozenset({Feature.JSON_SCHEMA, Feature.SCHEMA_TOOL})  # not used in streams
_REASONING_FIELD = "reasoning_content"
_CUT_OFF = frozenset({"length", "max_tokens", "MAX_TOKENS", "max_output_tokens"})


def open_langchain_model(name: ModelName, possible: str, lacks: Dialect = frozenset()) -> "LangChainModel":
    """Return the model of a provider that LangChain supports. Features in `lacks` are not tried.

    Raises ConfigurationError if it does not, if the provider's package is missing or if the package needs a setting.
    """

    def build(temperature: float | None, max_tokens: int | None) -> BaseChatModel:
        options: dict[str, Any] = {"max_retries": 0}
        if temperature is not None:
            options["temperature"] = temperature
        if max_tokens is not None:
            options["max_tokens"] = max_tokens
        return cast("BaseChatModel", init_chat_model(name.model, model_provider=name.provider, **options))

    try:
        build(0.0, None)
    except ImportError as error:
        raise ConfigurationError(f"The model {name} can't be used: {error}.", f"Other models: {possible}.") from error
    except Exception as error:  # each provider's package has errors of its own
        raise ConfigurationError(
            f"The model {name} can't be set up: {_error_text(error)}", f"Possible models: {possible}."
        ) from error
    return LangChainModel(str(name), build, lacks)


class LangChainModel:
    """One model behind a LangChain chat model."""

    def __init__(self, name: str, build: Build, lacks: Dialect = frozenset()) -> None:
        self.name = name
        self._build = build
        self._built: dict[tuple[float | None, int | None], BaseChatModel] = {}
        self.features = EndpointFeatures(_DIALECT, lacks)
        trace_model_requests()

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Return the complete answer within `request.timeout` seconds."""
        try:
            async with asyncio.timeout(request.timeout):
                return await self._answer(request)
        except Exception as error:  # each provider's package has errors of its own
            raise self._failure(error) from error

    async def stream_respond(self, request: ModelRequest) -> ReplyStream:
        """Yield text as it arrives, then the complete reply, within `request.timeout` seconds."""
        deadline = asyncio.get_running_loop().time() + request.timeout
        whole = None
        async for chunk in self._chunks(request, deadline):
            whole = chunk if whole is None else whole + chunk
            if text := str(chunk.text):
                yield TextDelta(text)
        if whole is None:
            raise LLMInvalidResponse(self.name, "the stream contained no answer.")
        yield checked_reply(self._reply(whole), request)

    async def _chunks(self, request: ModelRequest, deadline: float) -> AsyncGenerator[AIMessageChunk]:
        """Yield the pieces of an answer; without what the endpoint refuses, if it refuses before the first piece."""
        attempt = self.features.attempt(_SCHEMA_FORMS)
        while True:
            begun = False
            try:
                dialect = attempt.dialect
                stream: Any = self._runnable(request, dialect).astream(_messages(request, dialect))
                async with aclosing(stream):
                    while True:
                        async with asyncio.timeout_at(deadline):
                            chunk: AIMessageChunk | None = await anext(stream, None)
                        if chunk is None:
                            return
                        if not begun:
                            attempt.succeed()
                        begun = True
                        yield chunk
            except Exception as error:  # as above
                if begun or not self._reduce(attempt, request, error):
                    raise self._failure(error) from error

    async def _answer(self, request: ModelRequest) -> ModelReply:
        attempt = self.features.attempt()
        while True:
            try:
                dialect, response = attempt.dialect, request.response
                if response and schema_form(dialect, request) is Feature.JSON_SCHEMA and not request.tools:
                    reply = await self._structured(request, response, dialect)
                else:
                    reply = self._reply(await self._runnable(request, dialect).ainvoke(_messages(request, dialect)))
            except Exception as error:  # as above
                if not self._reduce(attempt, request, error):
                    raise
            else:
                attempt.succeed()
                return checked_reply(answer_of_schema_tool(reply, request), request)

    def _reduce(self, attempt: FeatureAttempt, request: ModelRequest, error: Exception) -> bool:
        """Leave out what `error` is about, and report it; False if it is not about a feature."""
        used = used_features(attempt.dialect, request, stream=False)
        if isinstance(error, NotImplementedError):  # of a package for models without the feature
            lacking = [feature for feature in used if feature is not Feature.TEMPERATURE]
            if lacking:
                attempt.leave_out(lacking[0])
            return bool(lacking)
        failure = self._failure(error)
        if not isinstance(failure, LLMServerError) or not attempt.reduce(used, failure.status, failure.reason):
            return False
        report_failed_attempt(request, failure)
        return True

    async def _structured(self, request: ModelRequest, response: ResponseSchema, dialect: Dialect) -> ModelReply:
        model = self._with_structured_output(self._model(request, dialect), response)
        answer = await model.ainvoke([_message(message) for message in request.messages])
        reply = self._reply(answer["raw"])
        parsed = as_object(answer["parsed"])
        content = dumps(parsed).decode() if parsed else reply.content
        return replace(reply, content=content, tool_calls=(), model=self.name)

    def _with_structured_output(self, model: BaseChatModel, response: ResponseSchema) -> Any:
        schema: dict[str, Any] = {"description": "The answer.", **response.schema, "title": response.name}
        return model.with_structured_output(schema, include_raw=True)

    def _model(self, request: ModelRequest, dialect: Dialect) -> BaseChatModel:
        key = (request.temperature if Feature.TEMPERATURE in dialect else None, request.max_tokens)
        if key not in self._built:
            model = self._build(*key)
            if "stream_usage" in type(model).model_fields:  # or streams report no tokens
                model.stream_usage = True  # pyright: ignore[reportAttributeAccessIssue]
            self._built[key] = model
        return self._built[key]

    def _runnable(self, request: ModelRequest, dialect: Dialect) -> Any:
        model = self._model(request, dialect)
        if request.tools and Feature.TOOLS in dialect:
            return model.bind_tools([tool_definition(tool) for tool in request.tools])
        if request.response is not None and schema_form(dialect, request) is Feature.SCHEMA_TOOL:
            return model.bind_tools([tool_definition(schema_tool(request.response))], tool_choice=request.response.name)
        return model

    def _reply(self, answer: AIMessage) -> ModelReply:
        usage = answer.usage_metadata
        blocks = [as_object(block) for block in answer.content_blocks]  # wherever the provider's package puts reasoning
        return ModelReply(
            content=str(answer.text),
            tool_calls=tuple(_calls(answer)),
            usage=TokenUsage(usage["input_tokens"], usage["output_tokens"]) if usage else TokenUsage(),
            model=self.name,
            finish_reason=_finish_reason(answer),
            reasoning="".join(as_text(one.get("reasoning")) for one in blocks if one.get("type") == "reasoning"),
            reasoning_field=_REASONING_FIELD if answer.additional_kwargs.get(_REASONING_FIELD) else "",
        )

    def _failure(self, error: Exception) -> ModelError:
        """Return the model error for an error of any provider's package."""
        if isinstance(error, ModelError):
            return error
        causes = list(_causes(error))
        kinds = {kind.__name__ for cause in causes for kind in type(cause).__mro__}
        if any("Timeout" in kind for kind in kinds):
            return LLMTimeout(self.name, "no complete answer in time.")
        status = _status(causes)
        if status is not None:
            text = self._without_keys(_error_text(error))
            return status_failure(self.name, status, text, _retry_after(causes))
        if not _CONNECTION_ERRORS.isdisjoint(kinds):
            # outermost first, without keys: an invalid header is quoted in its error
            texts = dict.fromkeys(str(cause).strip().rstrip(".") or type(cause).__name__ for cause in causes)
            reason = f"the connection to the provider failed: {shortened(self._without_keys('; '.join(texts)))}."
            missing = [variable for variable, key in self._keys().items() if not key and variable.endswith(_KEYS)]
            return LLMConnectionError(self.name, reason, f"Set {' or '.join(missing)}." if missing else "")
        if isinstance(error, (ValueError, KeyError, TypeError)) or any("FinishReason" in kind for kind in kinds):
            return LLMInvalidResponse(self.name, f"the answer can't be read: {_error_text(error)}")
        reason = f"{type(error).__name__}: {_error_text(error)}"
        return LLMServerError(self.name, reason, status=404)  # not retried, but it may name a refused feature

    def _without_keys(self, text: str) -> str:
        for key in filter(None, self._keys().values()):
            text = text.replace(key, "…")
        return text

    def _keys(self) -> dict[str, str]:
        """Return the secrets of the provider's package by variable; empty strings for unset ones."""
        model = next(iter(self._built.values()), None)
        if model is None:
            return {}
        found = {variable: getattr(model, name, None) for name, variable in model.lc_secrets.items()}
        plain = {name: key.get_secret_value() if isinstance(key, SecretStr) else key for name, key in found.items()}
        return {name: str(key or "").strip() for name, key in plain.items()}


def _messages(request: ModelRequest, dialect: Dialect) -> list[BaseMessage]:
    if request.tools and Feature.TOOLS not in dialect:
        request = with_tools_in_prompt(request)
    messages = request.messages
    if request.response is not None and schema_form(dialect, request) is not Feature.SCHEMA_TOOL:
        messages = with_schema_in_prompt(messages, request.response)
    return [_message(message) for message in messages]


def _message(message: Message) -> BaseMessage:
    match message.role:
        case "system":
            return SystemMessage(message.content)
        case "user":
            return HumanMessage(message.content)
        case "tool":
            return ToolMessage(message.content, tool_call_id=message.tool_call_id or "")
        case "assistant":
            calls = [
                {"type": "tool_call", "id": call.id, "name": call.name, "args": dict(call.arguments or {})}
                for call in message.tool_calls
            ]
            reasoning = message.reasoning  # packages of providers that want it back read it there
            kept = {_REASONING_FIELD: reasoning.text} if reasoning and reasoning.field == _REASONING_FIELD else {}
            return AIMessage(message.content, tool_calls=calls, additional_kwargs=kept)


def _calls(answer: AIMessage) -> Iterator[ModelToolCall]:
    # LangChain completes truncated JSON of a stream, which would change broken arguments.
    if isinstance(answer, AIMessageChunk) and answer.tool_call_chunks:
        for index, chunk in enumerate(answer.tool_call_chunks):
            yield _call(chunk["id"], chunk["name"], chunk["args"], index)
        return
    for index, call in enumerate(answer.tool_calls):
        yield _call(call["id"], call["name"], arguments_text(call["args"]), index)
    for index, broken in enumerate(answer.invalid_tool_calls, len(answer.tool_calls)):
        yield _call(broken["id"], broken["name"], broken["args"], index)


def _call(identity: str | None, name: str | None, arguments: str | None, index: int) -> ModelToolCall:
    raw = arguments or ""
    return ModelToolCall(identity or f"call_{index}", name or "", loads_arguments(raw), raw)


def _finish_reason(answer: AIMessage) -> str:
    metadata = as_object(answer.response_metadata)
    incomplete = as_text(as_object(metadata.get("incomplete_details")).get("reason"))  # of the Responses API
    reason = as_text(metadata.get("finish_reason")) or as_text(metadata.get("stop_reason")) or incomplete
    if reason in _CUT_OFF:
        return "length"
    return reason or ("tool_calls" if answer.tool_calls or answer.invalid_tool_calls else "stop")


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _status(causes: list[BaseException]) -> int | None:
    """Return the HTTP status of an SDK's error, which has one of several attribute names."""
    holders = [holder for cause in causes for holder in (cause, getattr(cause, "response", None))]
    values = (getattr(holder, name, None) for holder in holders for name in ("status_code", "code", "status"))
    return next((value for value in values if isinstance(value, int) and 400 <= value < 600), None)


def _retry_after(causes: list[BaseException]) -> str | None:
    headers = (getattr(getattr(cause, "response", None), "headers", None) for cause in causes)
    return next((found.get("retry-after") for found in headers if found is not None), None)


def _error_text(error: Exception) -> str:
    """Return the text of an error without the values that pydantic quotes, since one may be a key."""
    if isinstance(error, ValidationError):
        return "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
    return shortened(str(error))
