"""Failures and peculiarities of OpenAI-compatible endpoints."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import orjson
import pytest
from aiohttp import ClientSession

from starling.core.errors import LLMConnectionError, LLMInvalidResponse, LLMServerError, ModelError
from starling.core.llm import (
    Message,
    ModelReply,
    ModelRequest,
    ModelRole,
    ModelToolCall,
    ResponseSchema,
    ReturnedReasoning,
    TextDelta,
    TokenUsage,
)
from starling.infra.llm.chat_completions import StreamedAnswer
from starling.infra.llm.chat_model import Endpoint
from starling.infra.llm.openai_endpoint import EndpointModel, open_session
from tests.support.model_script import Answer, Rule, Script
from tests.support.model_server import ModelServer

ASKED = ModelRequest(ModelRole.ROUTER, (Message("user", "Say hello."),), timeout=20)
OPEN = ResponseSchema("open", {"type": "object", "properties": {"status": {"type": "string"}}})
KEY = "sk-0123456789abcdef0123456789abcdef"


@pytest.fixture
async def session() -> AsyncGenerator[ClientSession]:
    async with open_session(trust_env=False) as session:
        yield session


def model(server: ModelServer, session: ClientSession) -> EndpointModel:
    return EndpointModel("local:small", "small", Endpoint(server.url, KEY), session)


def events(*data: str) -> Answer:
    return Answer(body="".join(f"data: {item}\n\n" for item in data), content_type="text/event-stream")


@pytest.mark.parametrize(
    ("answer", "failure", "says"),
    [
        (Answer(body="<html>Welcome</html>", content_type="text/html"), LLMInvalidResponse, "text/html"),
        (Answer(body='{"choices": [{"mess'), LLMInvalidResponse, "not a JSON object"),
        (Answer(body='{"choices": []}'), LLMInvalidResponse, "no choice"),
        (Answer(body='{"choices": [null]}'), LLMInvalidResponse, "no choice"),
        (Answer(body='{"choices": [{"message": "text"}]}'), LLMInvalidResponse, "no choice"),
        (Answer(body='{"choices": [{"message": {"tool_calls": [7]}}]}'), LLMInvalidResponse, "has no tool name"),
        (Answer(body="x" * (17 * 1024**2)), LLMInvalidResponse, "longer than"),
        (Answer("Hello", cut_after=20), LLMConnectionError, "broke"),
        (Answer(body='{"error": {"message": "overloaded", "code": 503}}'), LLMServerError, "overloaded"),
        (Answer(body='{"error": "out of memory"}'), LLMServerError, "out of memory"),
        (Answer(status=500, body="<h1>Oops</h1>", content_type="text/html"), LLMServerError, "Oops"),
        (Answer(status=404, body='{"detail": "no such model"}'), LLMServerError, "no such model"),
        (Answer(status=302, headers={"Location": "http://elsewhere/"}, body=""), LLMServerError, "302"),
    ],
)
async def test_failure_of_a_response_raises_its_error_class(
    session: ClientSession, answer: Answer, failure: type[ModelError], says: str
) -> None:
    async with ModelServer(Script(Rule(answer))) as server:
        with pytest.raises(failure, match=says) as caught:
            await model(server, session).respond(ASKED)

    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("answer", "failure", "says"),
    [
        (Answer("one two three", cut_after=2), LLMConnectionError, "broke"),
        (events('{"choices": [{"delta": {"content": "one"}}]}'), LLMConnectionError, "ended before"),
        (events('{"choices": [{"delta"'), LLMInvalidResponse, "not a JSON object"),
        (events("[DONE]"), LLMInvalidResponse, "no answer"),
        (events('{"error": {"message": "crashed", "code": 502}}'), LLMServerError, "crashed"),
        (events('{"choices": [{"delta": 1}]}', '{"choices": 2}', "3"), LLMInvalidResponse, "not a JSON object"),
        (events(f'{{"choices": [{{"delta": {{"content": "{"x" * 17 * 1024**2}"}}}}]}}'), LLMInvalidResponse, "longer"),
        (Answer(body="<html></html>", content_type="text/html"), LLMInvalidResponse, "text/html"),
        (Answer(status=503, body="busy", content_type="text/plain"), LLMServerError, "busy"),
    ],
)
async def test_failure_of_a_stream_raises_its_error_class(
    session: ClientSession, answer: Answer, failure: type[ModelError], says: str
) -> None:
    async with ModelServer(Script(Rule(answer))) as server:
        with pytest.raises(failure, match=says):
            [item async for item in model(server, session).stream_respond(ASKED)]


async def test_endpoint_without_streaming_yields_one_piece(session: ClientSession) -> None:
    whole = '{"choices": [{"message": {"content": "Hello there."}, "finish_reason": "stop"}]}'

    async with ModelServer(Script(Rule(Answer(body=whole)))) as server:
        items = [item async for item in model(server, session).stream_respond(ASKED)]

    assert items == [TextDelta("Hello there."), ModelReply("Hello there.", model="local:small")]


async def test_echoed_api_key_is_masked(session: ClientSession) -> None:
    echo = Answer(status=401, body=f'{{"error": {{"message": "Incorrect API key: {KEY}"}}}}')

    async with ModelServer(Script(Rule(echo))) as server:
        with pytest.raises(LLMServerError, match=r"Incorrect API key: \*\*\*") as caught:
            await model(server, session).respond(ASKED)

    assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"
    assert KEY not in str(caught.value)


async def retry_after(session: ClientSession, header: str) -> float | None:
    """The seconds that a refusal with this header asks to wait."""
    async with ModelServer(Script(Rule(Answer(status=429, headers={"Retry-After": header}, body="{}")))) as server:
        with pytest.raises(LLMServerError) as caught:
            await model(server, session).respond(ASKED)
    return caught.value.retry_after


@pytest.mark.parametrize(("header", "seconds"), [("7", 7.0), ("0.5", 0.5)])
async def test_retry_after_header_is_parsed(session: ClientSession, header: str, seconds: float) -> None:
    assert await retry_after(session, header) == seconds


async def test_retry_after_header_may_be_a_date(session: ClientSession) -> None:
    seconds = await retry_after(session, format_datetime(datetime.now(UTC) + timedelta(hours=1)))

    assert 3_000 <= (seconds or 0) <= 3_600


@pytest.mark.parametrize("header", ["soon", "Sun, 06 Nov", "nan"])
async def test_unreadable_retry_after_header_is_ignored(session: ClientSession, header: str) -> None:
    assert await retry_after(session, header) is None


LIMA, OSLO = '{"city":"Lima"}', '{"city":"Oslo"}'


@pytest.mark.parametrize(
    ("parts", "calls"),
    [
        ([("a", "clock", LIMA), ("b", "clock", OSLO)], [("a", "clock", LIMA), ("b", "clock", OSLO)]),
        ([("", "clock", LIMA), ("", "clock", OSLO)], [("call_0", "clock", LIMA), ("call_1", "clock", OSLO)]),
        ([("", "clock", LIMA), ("", "look", OSLO)], [("call_0", "clock", LIMA), ("call_1", "look", OSLO)]),
        ([("a", "clock", '{"city":'), ("a", "clock", '"Lima"}'), ("a", "clock", "")], [("a", "clock", LIMA)]),
        ([("", "clock", '{"city":'), ("", "clock", '"Lima"}')], [("call_0", "clock", LIMA)]),
        ([("a", "clock", ""), ("", "", LIMA)], [("a", "clock", LIMA)]),
        ([("a", "clock", {"city": "Lima"})], [("a", "clock", LIMA)]),
    ],
    ids=["ids", "no ids", "no ids, other tool", "repeated id", "repeated name", "in pieces", "object"],
)
def test_streamed_calls_with_the_same_index_stay_separate(
    parts: list[tuple[str, str, object]], calls: list[tuple[str, str, str]]
) -> None:
    answer = StreamedAnswer("local:small")

    for identity, name, arguments in parts:
        call = {"index": 0, "id": identity, "function": {"name": name, "arguments": arguments}}
        answer.feed(b"data: " + orjson.dumps({"choices": [{"delta": {"tool_calls": [call]}}]}) + b"\n\n")
    answer.feed(b"data: [DONE]\n\n")

    assert [(call.id, call.name, call.raw_arguments) for call in answer.reply().tool_calls] == calls


async def test_usage_in_a_text_chunk_is_counted(session: ClientSession) -> None:
    usage = '"usage": {"prompt_tokens": 3, "completion_tokens": 1}'
    stream = events(
        f'{{"choices": [{{"delta": {{"content": "Hi"}}, "finish_reason": null}}], {usage}}}',
        f'{{"choices": [{{"delta": {{}}, "finish_reason": "stop"}}], {usage.replace("1", "2")}}}',
    )
    async with ModelServer(Script(Rule(stream))) as server:
        items = [item async for item in model(server, session).stream_respond(ASKED)]

    assert items == [TextDelta("Hi"), ModelReply("Hi", usage=TokenUsage(3, 2), model="local:small")]


@pytest.mark.parametrize(
    ("field", "sent"),
    [
        ("reasoning_content", {"content": None, "reasoning_content": "I look first."}),
        ("content", {"content": "<think>\nI look first.\n</think>\n\n"}),
    ],
)
async def test_reasoning_is_returned_as_it_came(
    session: ClientSession, field: str, sent: dict[str, str | None]
) -> None:
    returned = ReturnedReasoning("I look first.", field, "local:small")
    asked = Message("assistant", "", (ModelToolCall("call_0", "look", {}, "{}"),), reasoning=returned)
    messages = (*ASKED.messages, asked, Message("tool", "fine", tool_call_id="call_0"))

    async with ModelServer(Script(Rule(Answer("Fine.")))) as server:
        await model(server, session).respond(replace(ASKED, messages=messages))

    message = server.bodies[0]["messages"][1]
    assert {name: value for name, value in message.items() if name not in ("role", "tool_calls")} == sent


@pytest.mark.parametrize("stream", [True, False])
async def test_reasoning_in_a_field_is_no_text(session: ClientSession, stream: bool) -> None:
    async with ModelServer(Script(Rule(Answer("Fine.", reasoning="I look first.")))) as server:
        client = model(server, session)
        items = [item async for item in client.stream_respond(ASKED)] if stream else [await client.respond(ASKED)]

    reply = items[-1]
    assert isinstance(reply, ModelReply)
    assert (reply.content, reply.reasoning, reply.reasoning_field) == ("Fine.", "I look first.", "reasoning_content")
    assert [item.text for item in items if isinstance(item, TextDelta)] == ["Fine."] * stream


async def test_unpaired_surrogates_are_replaced_in_requests(session: ClientSession) -> None:
    async with ModelServer(Script(Rule(Answer("Fine.")))) as server:
        await model(server, session).respond(replace(ASKED, messages=(Message("user", "half a \ud83d pair"),)))

    assert server.bodies[0]["messages"][0]["content"] == "half a \ufffd pair"


async def test_connections_are_reused(session: ClientSession) -> None:
    async with ModelServer(Script(Rule(Answer("Hello there.")))) as server:
        client = model(server, session)
        await client.respond(ASKED)
        [item async for item in client.stream_respond(ASKED)]
        [item async for item in client.stream_respond(ASKED)]

    assert len({request.connection for request in server.requests}) == 1
