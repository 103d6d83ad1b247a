"""A LangChain chat model that speaks real HTTP, as a provider's package would."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import httpx
import orjson
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, convert_to_openai_messages
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import invalid_tool_call, tool_call, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool


class HttpChatModel(BaseChatModel):
    """Chat completions at `base_url`."""

    base_url: str
    temperature: float = 0.0
    max_tokens: int | None = None

    @property
    def _llm_type(self) -> str:
        return "http"

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[Any, AIMessage]:
        del tool_choice
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        async with httpx.AsyncClient() as client:
            response = await client.post(f"{self.base_url}/chat/completions", json=self._body(messages, kwargs))
            await _raise_refusal(response)
        body = response.json()
        return ChatResult(generations=[ChatGeneration(message=_message(body["choices"][0], _usage(body["usage"])))])

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        body = self._body(messages, kwargs) | {"stream": True, "stream_options": {"include_usage": True}}
        async with (
            httpx.AsyncClient() as client,
            client.stream("POST", f"{self.base_url}/chat/completions", json=body) as response,
        ):
            await _raise_refusal(response)
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    yield ChatGenerationChunk(message=_chunk(orjson.loads(line[6:])))

    def _body(self, messages: list[BaseMessage], options: dict[str, Any]) -> dict[str, Any]:
        sent: Any = convert_to_openai_messages(messages)
        for message, plain in zip(messages, sent, strict=True):
            if reasoning := message.additional_kwargs.get("reasoning_content"):
                plain["reasoning_content"] = reasoning
        body: dict[str, Any] = {"model": "http", "messages": sent, "temperature": self.temperature}
        if self.max_tokens is not None:
            body["max_tokens"] = self.max_tokens
        return body | {name: value for name, value in options.items() if name == "tools"}


async def _raise_refusal(response: httpx.Response) -> None:
    """Raise an error that quotes the body, as packages of providers do."""
    if response.is_error:
        text = (await response.aread()).decode()
        raise httpx.HTTPStatusError(f"{response.status_code} {text}", request=response.request, response=response)


def _message(choice: dict[str, Any], usage: UsageMetadata) -> AIMessage:
    message = choice["message"]
    calls = [(call["id"], call["function"]) for call in message.get("tool_calls", ())]
    parsed = [
        (identity, asked["name"], asked["arguments"], _arguments(asked["arguments"])) for identity, asked in calls
    ]
    return AIMessage(
        content=message["content"] or "",
        tool_calls=[tool_call(id=i, name=name, args=args) for i, name, _, args in parsed if args is not None],
        invalid_tool_calls=[
            invalid_tool_call(id=i, name=name, args=raw, error=None) for i, name, raw, args in parsed if args is None
        ],
        usage_metadata=usage,
        response_metadata={"finish_reason": choice["finish_reason"]},
        additional_kwargs=_reasoning(message),
    )


def _chunk(event: dict[str, Any]) -> AIMessageChunk:
    usage = _usage(event["usage"]) if "usage" in event else None
    if not event["choices"]:
        return AIMessageChunk(content="", usage_metadata=usage)
    choice = event["choices"][0]
    delta, reason = choice["delta"], choice["finish_reason"]
    calls = [
        tool_call_chunk(id=call.get("id"), index=call["index"], name=call["function"].get("name"), args=asked)
        for call in delta.get("tool_calls", ())
        if (asked := call["function"]["arguments"]) is not None
    ]
    return AIMessageChunk(
        content=delta.get("content") or "",
        tool_call_chunks=calls,
        response_metadata={"finish_reason": reason} if reason else {},
        additional_kwargs=_reasoning(delta),
    )


def _reasoning(message: dict[str, Any]) -> dict[str, Any]:
    return {"reasoning_content": message["reasoning_content"]} if "reasoning_content" in message else {}


def _arguments(text: str) -> dict[str, Any] | None:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _usage(usage: dict[str, int]) -> UsageMetadata:
    return UsageMetadata(
        input_tokens=usage["prompt_tokens"],
        output_tokens=usage["completion_tokens"],
        total_tokens=usage["total_tokens"],
    )
