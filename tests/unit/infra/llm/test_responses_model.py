"""Models behind the Responses API."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import orjson
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from pydantic import TypeAdapter

from starling.core.errors import LLMConnectionError, LLMInvalidResponse, LLMServerError
from starling.core.llm import Message, ModelRequest, ModelRole, ModelToolCall, ResponseSchema, ToolSpec
from starling.core.settings.schema import ProviderSettings, Settings
from starling.infra.llm.chat_model import Endpoint, ModelName
from starling.infra.llm.factory import open_models
from starling.infra.llm.responses_model import ResponsesModel, open_responses_model
from tests.support import responses_api
from tests.support.model_script import Answer, Body, Rule, Script, When
from tests.support.model_server import ModelServer

ASKED = ModelRequest(
    ModelRole.ROUTER, (Message("system", "Be brief."), Message("user", "Hi.")), max_tokens=50, timeout=20
)
STATUS: dict[str, Any] = {"type": "object", "properties": {"status": {"type": "string"}}}
VERDICT = ResponseSchema("verdict", STATUS | {"required": ["status"], "additionalProperties": False})
CLOCK = ToolSpec("clock", "Tells the time.", {"type": "object", "properties": {"city": {"type": "string"}}})
LIMA = ModelToolCall("call_a", "clock", {"city": "Lima"}, '{"city":"Lima"}')
KEY = "sk-0123456789abcdef0123456789abcdef"


@pytest.fixture
def rules() -> list[Rule]:
    return []


@pytest.fixture
async def server(rules: list[Rule]) -> AsyncGenerator[ModelServer]:
    async def respond(body: Body) -> Answer:
        return await Script(*rules)(body)

    async with ModelServer(respond) as server:
        yield server


@pytest.fixture
def model(server: ModelServer) -> ResponsesModel:
    return open_responses_model(ModelName("hosted", "small"), Endpoint(server.url, KEY, "responses"))


@pytest.mark.parametrize(
    "answer",
    [
        Answer("Hello there."),
        Answer("Hel", finish_reason="length"),
        Answer("Wait.", tool_calls=[{"name": "clock", "arguments": {"city": "Lima"}}] * 2),
    ],
)
def test_scripted_server_answers_in_the_published_shapes(answer: Answer) -> None:
    Response.model_validate(responses_api.response({"model": "small"}, answer), strict=True)
    events: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)

    for event in responses_api.events({"model": "small"}, answer):
        events.validate_python(event)


async def test_request_has_the_published_shape_and_the_whole_conversation(
    model: ResponsesModel, server: ModelServer, rules: list[Rule]
) -> None:
    rules.append(Rule(Answer("It is noon.")))
    told = (Message("assistant", "", tool_calls=(LIMA,)), Message("tool", "12:00", tool_call_id="call_a"))

    await model.respond(replace(ASKED, messages=(*ASKED.messages, *told), tools=(CLOCK,)))

    [sent] = server.response_requests
    TypeAdapter(ResponseCreateParamsNonStreaming).validate_python(sent)
    assert [item.get("type", "message") for item in sent["input"]] == [
        "message", "message", "function_call", "function_call_output",
    ]  # fmt: skip
    assert (sent["model"], sent["max_output_tokens"], sent["temperature"], sent["store"]) == ("small", 50, 0.0, False)
    assert sent["tools"][0]["name"] == "clock"
    assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(("schema", "strict"), [(VERDICT, True), (ResponseSchema("verdict", STATUS), False)])
async def test_schema_mode_is_strict_where_the_schema_can_be(
    model: ResponsesModel, server: ModelServer, rules: list[Rule], schema: ResponseSchema, strict: bool
) -> None:
    rules.append(Rule(Answer('{"status": "fine"}'), When(schema="verdict")))

    reply = await model.respond(replace(ASKED, response=schema))

    assert orjson.loads(reply.content) == {"status": "fine"}
    assert server.response_requests[0]["text"]["format"]["strict"] is strict


async def test_refused_temperature_is_omitted_and_remembered(server: ModelServer) -> None:
    async def respond(body: Body) -> Answer:
        message = "Unsupported parameter: 'temperature' is not supported with this model."
        refusal = Answer(status=400, body=orjson.dumps({"error": {"message": message}}).decode())
        return refusal if "temperature" in body else Answer("Hello.")

    async with ModelServer(respond) as strict:
        model = open_responses_model(ModelName("hosted", "small"), Endpoint(strict.url, KEY, "responses"))
        replies = [await model.respond(ASKED) for _ in range(2)]

    assert [reply.content for reply in replies] == ["Hello."] * 2
    assert ["temperature" in body for body in strict.response_requests] == [True, False, False]


FAULT: Body = {"id": "r", "status": "failed", "output": [], "error": {"code": "server_error", "message": "it broke"}}
FAILED: Body = {"type": "response.failed", "sequence_number": 0, "response": FAULT}


def event_stream(*events: Body) -> Answer:
    text = "".join(f"event: {event['type']}\ndata: {orjson.dumps(event).decode()}\n\n" for event in events)
    return Answer(body=text, content_type="text/event-stream")


@pytest.mark.parametrize(
    ("answer", "failure", "status"),
    [
        (event_stream({"type": "error", "code": "rate_limit_exceeded", "message": "slow down"}), LLMServerError, 429),
        (event_stream(FAILED), LLMServerError, 500),
        (event_stream(*list(responses_api.events({"model": "m"}, Answer("One two.")))[:-3]), LLMConnectionError, None),
        (event_stream(), LLMInvalidResponse, None),
        (event_stream({"type": "error", "code": "image_parse_error", "message": "?"}), LLMInvalidResponse, None),
    ],
)
async def test_failure_inside_a_stream_raises_its_error_class(
    model: ResponsesModel, rules: list[Rule], answer: Answer, failure: type[Exception], status: int | None
) -> None:
    rules.append(Rule(answer))

    with pytest.raises(failure) as caught:
        [item async for item in model.stream_respond(ASKED)]

    assert getattr(caught.value, "status", None) == status


async def test_echoed_api_key_is_masked(model: ResponsesModel, rules: list[Rule]) -> None:
    rules.append(Rule(Answer(status=401, body=f'{{"error": {{"message": "Incorrect API key: {KEY}"}}}}')))

    with pytest.raises(LLMServerError, match="Incorrect API key") as caught:
        await model.respond(ASKED)

    assert KEY not in str(caught.value)


async def test_provider_set_to_responses_is_asked_there(server: ModelServer, rules: list[Rule]) -> None:
    rules.append(Rule(Answer("Hello.")))
    hosted = ProviderSettings(base_url=server.url, api="responses")

    async with open_models(Settings(model=("hosted:small",), providers={"hosted": hosted})) as models:
        reply = await models.respond(ASKED)

    assert (reply.content, reply.model, len(server.response_requests)) == ("Hello.", "hosted:small", 1)
