"""Features that an endpoint refuses: omitted, remembered, and replaced by another form of the request."""

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import replace

import orjson
import pytest
from aiohttp import ClientSession

from starling.core.errors import LLMServerError
from starling.core.llm import (
    FailedAttempt,
    Message,
    ModelReply,
    ModelRequest,
    ModelRole,
    ModelToolCall,
    ResponseSchema,
    TextDelta,
    ToolSpec,
)
from starling.infra.llm.chat_model import Endpoint
from starling.infra.llm.endpoint_capabilities import EVERYTHING, EndpointFeatures, Feature
from starling.infra.llm.openai_endpoint import EndpointModel, open_session
from starling.infra.llm.output_reader import OutputReader
from tests.support.model_script import Answer, Body, Rule, Script
from tests.support.model_server import ModelServer
from tests.support.set_clock import SetClock

type IsUsed = Callable[[Body], bool]

ASKED = ModelRequest(ModelRole.ROUTER, (Message("user", "Say hello."),), timeout=20)
OPEN = ResponseSchema("open", {"type": "object", "properties": {"status": {"type": "string"}}})
FINE = '{"status": "fine"}'
CLOCK = ToolSpec("clock", "Tells the time.", {"type": "object", "properties": {"city": {"type": "string"}}})
LIMA = ModelToolCall("call_0", "clock", {"city": "Lima"}, '{"city":"Lima"}')
LIMA_IN_TEXT = '{"tool_calls": [{"name": "clock", "arguments": {"city": "Lima"}}]}'


@pytest.fixture
async def session() -> AsyncGenerator[ClientSession]:
    async with open_session(trust_env=False) as session:
        yield session


def adapter(server: ModelServer, session: ClientSession) -> EndpointModel:
    return EndpointModel("local:small", "small", Endpoint(server.url), session)


def model(server: ModelServer, session: ClientSession) -> OutputReader:
    return OutputReader(adapter(server, session))


def uses(part: str) -> IsUsed:
    return lambda body: part in body


def wants_schema(body: Body) -> bool:
    return body.get("response_format", {}).get("type") == "json_schema"


def wants_schema_or_tools(body: Body) -> bool:
    return wants_schema(body) or "tools" in body


def wants_object(body: Body) -> bool:
    return body.get("response_format", {}).get("type") == "json_object"


class LimitedEndpoint:
    """Refuses a request that uses one of these features with a message that names it; else answers."""

    def __init__(self, refused: Mapping[str, IsUsed], answer: str = FINE, status: int = 400) -> None:
        self._refused, self._answer, self._status = refused, answer, status

    async def __call__(self, body: Body) -> Answer:
        for word, is_used in self._refused.items():
            if is_used(body):
                return Answer(status=self._status, body=orjson.dumps({"error": {"message": word}}).decode())
        if "tool_choice" in body:
            return Answer(tool_calls=[{"name": body["tool_choice"]["function"]["name"], "arguments": self._answer}])
        return Answer(self._answer)


async def ask(client: OutputReader, request: ModelRequest, *, stream: bool) -> ModelReply:
    if not stream:
        return await client.respond(request)
    *pieces, reply = [item async for item in client.stream_respond(request)]
    assert isinstance(reply, ModelReply)
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextDelta)) == reply.content
    return reply


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("refusal", "is_used"),
    [
        ("Unsupported: response_format json_schema", wants_schema),
        ("Unsupported: response_format", uses("response_format")),
        ("Unsupported: stream_options", uses("stream_options")),
        ("Unsupported: max_tokens, use max_completion_tokens", uses("max_tokens")),
        ("Unsupported: temperature", uses("temperature")),
        ("Bad request", wants_schema),
        ("Bad request", uses("response_format")),
        ("Bad request", wants_schema_or_tools),
    ],
)
async def test_refused_feature_is_omitted_and_remembered(
    session: ClientSession, refusal: str, is_used: IsUsed, stream: bool
) -> None:
    reported: list[FailedAttempt] = []
    asked = replace(ASKED, response=OPEN, max_tokens=50, on_failed_attempt=reported.append)

    async with ModelServer(LimitedEndpoint({refusal: is_used})) as server:
        client = model(server, session)
        replies = [await ask(client, asked, stream=stream) for _ in range(2)]

    assert [reply.content for reply in replies] == [FINE] * 2
    assert not is_used(server.bodies[-1])
    assert sum(map(is_used, server.bodies)) == len(server.bodies) - 2 == len(reported)


SCHEMA, TOOL, OBJECT = (
    {"json_schema is not supported": wants_schema},
    {"tool_choice is not supported": uses("tool_choice")},
    {"json_object is not supported": wants_object},
)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("refused", "form", "in_prompt"),
    [
        ({}, "json_schema", False),
        (SCHEMA, "tool_choice", False),
        (SCHEMA | TOOL, "json_object", True),
        (SCHEMA | TOOL | OBJECT, "", True),
    ],
)
async def test_schema_is_asked_for_in_the_strictest_form_that_the_endpoint_takes(
    session: ClientSession, refused: Mapping[str, IsUsed], form: str, in_prompt: bool, stream: bool
) -> None:
    async with ModelServer(LimitedEndpoint(refused)) as server:
        client = model(server, session)
        replies = [await ask(client, replace(ASKED, response=OPEN), stream=stream) for _ in range(2)]

    last = server.bodies[-1]
    assert [(reply.content, reply.tool_calls, reply.finish_reason) for reply in replies] == [(FINE, (), "stop")] * 2
    assert len(server.bodies) == 2 + len(refused)
    assert last.get("response_format", {}).get("type", "tool_choice" if "tool_choice" in last else "") == form
    assert ('"properties":{"status"' in last["messages"][0]["content"]) == in_prompt


async def test_endpoint_that_answers_in_words_despite_a_forced_tool_is_read(session: ClientSession) -> None:
    async def respond(body: Body) -> Answer:
        return Answer(status=400, body="{}") if wants_schema(body) else Answer(FINE)

    async with ModelServer(respond) as server:
        reply = await model(server, session).respond(replace(ASKED, response=OPEN))

    assert reply.content == FINE


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("status", "refusal"),
    [
        (400, "registry.ollama.ai/library/gemma:2b does not support tools"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        (404, "No endpoints found that support tool use."),
        (500, "tools param requires --jinja flag"),
    ],
)
async def test_model_without_tool_calling_gets_tools_in_the_prompt_and_calls_by_json(
    session: ClientSession, status: int, refusal: str, stream: bool
) -> None:
    endpoint = LimitedEndpoint({refusal: uses("tools")}, LIMA_IN_TEXT, status)

    async with ModelServer(endpoint) as server:
        client = model(server, session)
        replies = [await ask(client, replace(ASKED, tools=(CLOCK,)), stream=stream) for _ in range(2)]

    assert [(reply.tool_calls, reply.content) for reply in replies] == [((LIMA,), "")] * 2
    assert len(server.bodies) == 3
    system, user = server.bodies[-1]["messages"]
    assert ('"name":"clock"' in system["content"], '"name":"clock"' in user["content"]) == (False, True)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "refusal",
    [
        "unprocessable",
        "Invalid schema for function 'clock': schema must be a JSON Schema of 'type: \"object\"', got 'type: null'.",
        "tools.39.custom.input_schema: JSON schema is invalid. Learn more about tool use in the documentation.",
        "tools.0.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level",
        "Invalid 'tools': array too long. Expected an array with maximum length 128.",
        "Unknown name \"const\" at 'tools[0].function_declarations[0].parameters': Cannot find field.",
        "An assistant message with 'tool_calls' must be followed by tool messages.",
    ],
)
async def test_tools_refused_for_another_reason_are_in_the_prompt_of_this_request_only(
    session: ClientSession, refusal: str, stream: bool
) -> None:
    wrong = replace(CLOCK, name="wrong")
    endpoint = LimitedEndpoint({refusal: lambda body: "wrong" in str(body.get("tools"))}, LIMA_IN_TEXT)

    async with ModelServer(endpoint) as server:
        inner = adapter(server, session)
        client = OutputReader(inner)
        first = await ask(client, replace(ASKED, tools=(CLOCK, wrong)), stream=stream)
        lacked = inner.features.lacking
        await ask(client, replace(ASKED, tools=(CLOCK,)), stream=stream)

    assert (first.tool_calls, Feature.TOOLS in lacked) == ((LIMA,), True)
    assert ["tools" in body for body in server.bodies[-2:]] == [False, True]
    assert ("stream_options" in server.bodies[-1]) == stream


@pytest.mark.parametrize(
    "refusal",
    [
        "Unsupported parameter: 'tools' is not supported with this model.",
        "Unrecognized request argument supplied: tools",
        "body.tools: Extra inputs are not permitted",
        "Function calling is not enabled for models/small",
        "This model doesn't support tool use.",
        "`tool calling` is not supported with this model",
    ],
)
def test_refusal_that_says_that_tools_are_unsupported_holds_for_ten_minutes(refusal: str) -> None:
    clock = SetClock()
    endpoint = EndpointFeatures(EVERYTHING, clock=clock)
    attempt = endpoint.attempt()
    assert attempt.reduce([Feature.TOOLS], 400, refusal)
    attempt.succeed()

    left_out = Feature.TOOLS not in endpoint.attempt().dialect
    clock.seconds += 601

    assert (left_out, Feature.TOOLS in endpoint.attempt().dialect) == (True, True)


def test_refusal_is_forgotten_if_the_request_fails_without_the_feature_too() -> None:
    endpoint = EndpointFeatures(EVERYTHING)

    endpoint.attempt().reduce([Feature.TOOLS], 400, "tools are not supported")

    assert (endpoint.attempt().dialect, endpoint.lacking) == (EVERYTHING, frozenset())


async def test_calls_and_results_are_text_for_a_model_without_tool_calling(session: ClientSession) -> None:
    told = (
        Message("assistant", "", tool_calls=(LIMA, LIMA)),
        Message("tool", "noon", tool_call_id="call_0"),
        Message("tool", "one\no'clock", tool_call_id="call_1"),
    )
    endpoint = LimitedEndpoint({"no tools": uses("tools")}, "It is noon.")

    async with ModelServer(endpoint) as server:
        asked = replace(ASKED, messages=(*ASKED.messages, *told), tools=(CLOCK,))
        reply = await model(server, session).respond(asked)

    assert (reply.content, reply.tool_calls) == ("It is noon.", ())
    system, user, called, results = server.bodies[-1]["messages"]
    assert [message["role"] for message in (system, user, called, results)] == ["system", "user", "assistant", "user"]
    assert len(orjson.loads(called["content"])["tool_calls"]) == 2
    assert '1. "noon"\n2. "one\\no\'clock"' in results["content"]
    assert not any("tool_calls" in message or "tool_call_id" in message for message in server.bodies[-1]["messages"])


@pytest.mark.parametrize(
    ("status", "refusal"),
    [
        (400, "maximum context length is 8192"),
        (400, "prompt is too long: 210000 tokens > 200000 maximum"),
        (400, "The input token count (140000) exceeds the maximum number of tokens allowed (131072)."),
        (400, "Your credit balance is too low to access the API."),
        (500, "Failed to parse tool call arguments as JSON"),
        (400, "The response was filtered: content_filter"),
        (404, "The model `small` does not exist"),
        (401, "Tools need another key"),
    ],
)
async def test_refusal_that_is_not_about_a_feature_is_raised_at_once(
    session: ClientSession, status: int, refusal: str
) -> None:
    answer = Answer(status=status, body=orjson.dumps({"error": {"message": refusal}}).decode())

    async with ModelServer(Script(Rule(answer))) as server:
        with pytest.raises(LLMServerError):
            await model(server, session).respond(replace(ASKED, response=OPEN, tools=(CLOCK,)))

    assert len(server.requests) == 1
