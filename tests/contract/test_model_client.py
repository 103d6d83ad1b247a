"""What every adapter of a model does, against a scripted server."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace

import orjson
import pytest

from starling.core.clock import SystemClock
from starling.core.errors import LLMConnectionError, LLMInvalidResponse, LLMServerError, LLMTimeout
from starling.core.llm import (
    Message,
    ModelClient,
    ModelReply,
    ModelRequest,
    ModelRole,
    ModelToolCall,
    ResponseSchema,
    TextDelta,
    TokenUsage,
    ToolSpec,
)
from starling.core.tracing import SpanKind
from starling.infra.llm.chat_model import ChatModel, Endpoint, ModelName
from starling.infra.llm.client import FallbackModelClient
from starling.infra.llm.langchain_model import LangChainModel
from starling.infra.llm.openai_endpoint import EndpointModel, open_session
from starling.infra.llm.responses_model import open_responses_model
from starling.infra.tracing.spans import SpanTracer, trace_headers
from tests.support.http_chat_model import HttpChatModel
from tests.support.model_script import Answer, Rule, Script, When
from tests.support.model_server import ModelServer
from tests.support.run_factories import CLAIMED_RUN

ASKED = ModelRequest(ModelRole.ROUTER, (Message("system", "Be brief."), Message("user", "Say hello.")), timeout=20)
CLOCK_TOOL = ToolSpec("clock", "Tells the time.", {"type": "object", "properties": {"city": {"type": "string"}}})
VERDICT = ResponseSchema(
    "verdict",
    {
        "type": "object",
        "properties": {"status": {"type": "string"}},
        "required": ["status"],
        "additionalProperties": False,
    },
)
LIMA = ModelToolCall("call_a", "clock", {"city": "Lima"}, '{"city":"Lima"}')
OSLO = ModelToolCall("call_b", "clock", {"city": "Oslo"}, '{"city":"Oslo"}')
TWO_CALLS = Answer(
    tool_calls=[{"id": call.id, "name": call.name, "arguments": call.raw_arguments} for call in (LIMA, OSLO)]
)


@dataclass(frozen=True, slots=True)
class Setting:
    """A client of each kind, and how to have its server answer."""

    client: ChatModel | ModelClient
    name: str
    server: ModelServer
    rules: list[Rule]

    def answers(self, answer: Answer, when: When | None = None) -> None:
        self.rules.append(Rule(answer, when or When()))

    async def stream(self, request: ModelRequest) -> tuple[list[str], ModelReply]:
        items = [item async for item in self.client.stream_respond(request)]
        assert isinstance(items[-1], ModelReply)
        return [item.text for item in items if isinstance(item, TextDelta)], items[-1]


@pytest.fixture(params=["endpoint", "langchain", "responses", "models"])
async def setting(request: pytest.FixtureRequest) -> AsyncGenerator[Setting]:
    rules: list[Rule] = []

    async def respond(body: dict[str, object]) -> Answer:
        return await Script(*rules)(body)

    async with ModelServer(respond) as server, open_session(trust_env=False) as session:
        endpoint = EndpointModel("local:small", "small", Endpoint(server.url), session)
        url = server.url
        langchain = LangChainModel(
            "http:small", lambda t, m: HttpChatModel(base_url=url, temperature=t or 0.0, max_tokens=m)
        )
        responses = open_responses_model(ModelName("hosted", "small"), Endpoint(server.url, api="responses"))
        models = FallbackModelClient(
            dict.fromkeys(ModelRole, (endpoint,)), SystemClock(), lambda _: endpoint, lambda _: 0.0
        )
        clients: dict[str, tuple[ChatModel | ModelClient, str]] = {
            "endpoint": (endpoint, endpoint.name),
            "langchain": (langchain, langchain.name),
            "responses": (responses, responses.name),
            "models": (models, endpoint.name),
        }
        yield Setting(*clients[request.param], server, rules)


async def test_text_has_usage_and_model_name(setting: Setting) -> None:
    setting.answers(Answer("Hello there."))

    reply = await setting.client.respond(ASKED)

    assert reply == ModelReply("Hello there.", usage=TokenUsage(11, 7), model=setting.name)


async def test_requests_carry_the_span_of_their_call(setting: Setting) -> None:
    tracer = SpanTracer(lambda _: None, None, with_content=True)
    setting.answers(Answer("Hello there."))

    with tracer.segment(CLAIMED_RUN), tracer.span("chat", SpanKind.GENERATION, dict):
        headers, span = trace_headers(), tracer.span_id()
        await setting.client.respond(ASKED)
        await setting.stream(ASKED)
    await setting.client.respond(ASKED)

    assert span in headers["traceparent"]
    sent = [request.headers.get("traceparent") for request in setting.server.requests]
    assert sent == [headers["traceparent"], headers["traceparent"], None]


async def test_streamed_text_ends_with_usage(setting: Setting) -> None:
    setting.answers(Answer("Hello there, friend."))

    pieces, reply = await setting.stream(ASKED)

    assert pieces == ["Hello ", "there, ", "friend."]
    assert reply == ModelReply("Hello there, friend.", usage=TokenUsage(11, 7), model=setting.name)


async def test_several_tool_calls_are_returned_together(setting: Setting) -> None:
    setting.answers(TWO_CALLS)

    reply = await setting.client.respond(replace(ASKED, tools=(CLOCK_TOOL,)))

    assert reply.tool_calls == (LIMA, OSLO)
    assert reply.finish_reason == "tool_calls"
    assert setting.server.bodies[0]["tools"][0]["function"]["parameters"] == CLOCK_TOOL.parameters


async def test_streamed_tool_calls_are_assembled(setting: Setting) -> None:
    setting.answers(TWO_CALLS)

    pieces, reply = await setting.stream(replace(ASKED, tools=(CLOCK_TOOL,)))

    assert pieces == []
    assert reply.tool_calls == (LIMA, OSLO)


async def test_arguments_that_are_not_json_stay_text(setting: Setting) -> None:
    setting.answers(Answer(tool_calls=[{"id": "call_a", "name": "clock", "arguments": '{"city": "Li'}]))

    reply = await setting.client.respond(replace(ASKED, tools=(CLOCK_TOOL,)))
    _, streamed = await setting.stream(replace(ASKED, tools=(CLOCK_TOOL,)))

    assert reply.tool_calls == streamed.tool_calls == (ModelToolCall("call_a", "clock", None, '{"city": "Li'),)


async def test_calls_and_results_are_sent_back_to_the_model(setting: Setting) -> None:
    setting.answers(Answer("It is noon."))
    told = (Message("assistant", "", tool_calls=(LIMA,)), Message("tool", "12:00", tool_call_id="call_a"))

    await setting.client.respond(replace(ASKED, messages=(*ASKED.messages, *told)))

    _, _, called, result = setting.server.bodies[0]["messages"]
    assert called["tool_calls"][0]["id"] == "call_a"
    assert orjson.loads(called["tool_calls"][0]["function"]["arguments"]) == {"city": "Lima"}
    assert (result["role"], result["content"], result["tool_call_id"]) == ("tool", "12:00", "call_a")


@pytest.mark.parametrize("setting", ["endpoint", "langchain", "models"], indirect=True)
async def test_reasoning_is_no_text_and_is_returned_with_its_calls(setting: Setting) -> None:
    setting.answers(replace(TWO_CALLS, reasoning="I ask the clock."), When(last_contains="Say hello."))
    setting.answers(Answer("It is noon.", reasoning="That was easy."))
    first = await setting.client.respond(replace(ASKED, tools=(CLOCK_TOOL,)))
    asked = Message("assistant", "", first.tool_calls, reasoning=first.returned_reasoning)
    told = [Message("tool", "12:00", tool_call_id=call.id) for call in first.tool_calls]

    pieces, reply = await setting.stream(replace(ASKED, messages=(*ASKED.messages, asked, *told)))

    assert (first.content, first.reasoning, "".join(pieces)) == ("", "I ask the clock.", "It is noon.")
    assert (reply.content, reply.reasoning) == ("It is noon.", "That was easy.")
    assert setting.server.bodies[1]["messages"][2]["reasoning_content"] == "I ask the clock."


async def test_json_answer_fits_its_schema(setting: Setting) -> None:
    setting.answers(Answer('{"status": "APPROVED"}'), When(schema="verdict"))
    setting.answers(Answer(tool_calls=[{"name": "verdict", "arguments": {"status": "APPROVED"}}]), When(tool="verdict"))

    reply = await setting.client.respond(replace(ASKED, response=VERDICT))

    assert orjson.loads(reply.content) == {"status": "APPROVED"}
    assert reply.tool_calls == ()


async def test_json_answer_is_streamed(setting: Setting) -> None:
    setting.answers(Answer('{"status": "APPROVED"}'))

    _, reply = await setting.stream(replace(ASKED, response=VERDICT))

    assert orjson.loads(reply.content) == {"status": "APPROVED"}


async def test_truncated_json_answer_is_invalid(setting: Setting) -> None:
    setting.answers(Answer('{"status": "APPR', finish_reason="length"))

    with pytest.raises(LLMInvalidResponse, match="token limit"):
        await setting.client.respond(replace(ASKED, response=VERDICT, max_tokens=7))


@pytest.mark.parametrize(("status", "retryable"), [(401, False), (429, True), (500, True), (503, True)])
async def test_endpoint_failure_carries_its_status(setting: Setting, status: int, retryable: bool) -> None:
    setting.answers(Answer(status=status, body='{"error": {"message": "not now"}}'))

    with pytest.raises(LLMServerError) as caught:
        await setting.client.respond(ASKED)

    assert (caught.value.status, caught.value.retryable) == (status, retryable)


async def test_missing_answer_is_a_timeout(setting: Setting) -> None:
    setting.answers(Answer("too late", hold="never"))

    with pytest.raises(LLMTimeout):
        await setting.client.respond(replace(ASKED, timeout=0.2))


@pytest.mark.parametrize(
    "answer",
    [Answer("one two three", hold="never", hold_after=2), Answer("on and " * 500, part_seconds=0.01)],
    ids=["stalled", "slow as a whole"],
)
async def test_stream_that_takes_too_long_is_a_timeout(setting: Setting, answer: Answer) -> None:
    setting.answers(answer)

    with pytest.raises(LLMTimeout):
        await setting.stream(replace(ASKED, timeout=0.3))


async def test_unreachable_endpoint_is_a_connection_error(setting: Setting) -> None:
    await setting.server.stop()

    with pytest.raises(LLMConnectionError):
        await setting.client.respond(ASKED)


async def test_interrupted_stream_is_a_connection_error(setting: Setting) -> None:
    setting.answers(Answer("one two three", cut_after=1))

    with pytest.raises(LLMConnectionError):
        await setting.stream(ASKED)
