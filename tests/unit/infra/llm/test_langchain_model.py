"""Behaviour specific to models of LangChain."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any, Never

import orjson
import pytest
from pydantic import SecretStr

from starling.core.errors import LLMConnectionError, LLMInvalidResponse, LLMServerError
from starling.core.llm import Message, ModelReply, ModelRequest, ModelRole, ResponseSchema, ToolSpec
from starling.infra.llm.langchain_model import LangChainModel
from starling.infra.llm.output_reader import OutputReader
from tests.support.http_chat_model import HttpChatModel
from tests.support.model_script import Answer, Body, Rule, Script, When
from tests.support.model_server import ModelServer

ASKED = ModelRequest(
    ModelRole.ROUTER,
    (Message("user", "Is it fine?"),),
    response=ResponseSchema("verdict", {"type": "object", "properties": {"status": {"type": "string"}}}),
    timeout=20,
)
FINE = Answer('{"status": "fine"}')
CLOCK = ToolSpec("clock", "Tells the time.", {"type": "object", "properties": {"city": {"type": "string"}}})
CALL_IN_WORDS = Answer('{"tool_calls": [{"name": "clock", "arguments": {"city": "Lima"}}]}')


@pytest.fixture
def rules() -> list[Rule]:
    return []


@pytest.fixture
async def server(rules: list[Rule]) -> AsyncGenerator[ModelServer]:
    script: list[Script] = []

    async def respond(body: Body) -> Answer:
        script[:] = script or [Script(*rules)]
        return await script[0](body)

    async with ModelServer(respond) as server:
        yield server


@pytest.fixture
def model(server: ModelServer) -> LangChainModel:
    url = server.url
    return LangChainModel("http:small", lambda t, m: HttpChatModel(base_url=url, temperature=t or 0.0, max_tokens=m))


@pytest.mark.parametrize("refused", [[When(tool="verdict", contains="fine?")], [When(tool="verdict", nth=1)]])
async def test_refused_schema_is_asked_for_otherwise_and_remembered(
    model: LangChainModel, server: ModelServer, rules: list[Rule], refused: list[When]
) -> None:
    call = Answer(tool_calls=[{"name": "verdict", "arguments": FINE.content}])
    rules += [
        *(Rule(Answer(status=400, body="{}"), when) for when in refused),
        Rule(call, When(tool="verdict")),
        Rule(FINE),
    ]

    replies = [await model.respond(ASKED) for _ in range(2)]

    assert [(orjson.loads(reply.content), reply.tool_calls) for reply in replies] == [({"status": "fine"}, ())] * 2
    in_prompt = ['"properties":{"status"' in body["messages"][0]["content"] for body in server.bodies]
    assert in_prompt in ([False, False, True, True], [False, False, False])  # as a tool first, then in words


async def in_words(given: LangChainModel, *, stream: bool) -> list[ModelReply]:
    model = OutputReader(given)
    asked = replace(ASKED, response=None, tools=(CLOCK,))
    if not stream:
        return [await model.respond(asked) for _ in range(2)]
    streams = [[item async for item in model.stream_respond(asked)] for _ in range(2)]
    assert [len(items) for items in streams] == [1, 1]  # no text, the calls are not shown
    return [item for items in streams for item in items if isinstance(item, ModelReply)]


@pytest.mark.parametrize("stream", [False, True])
async def test_refused_tools_are_put_into_the_prompt_and_remembered(
    model: LangChainModel, server: ModelServer, rules: list[Rule], stream: bool
) -> None:
    rules += [
        Rule(Answer(status=400, body='{"error": {"message": "tools are not supported"}}'), When(tool="clock")),
        Rule(CALL_IN_WORDS),
    ]

    replies = await in_words(model, stream=stream)

    assert [[call.arguments for call in reply.tool_calls] for reply in replies] == [[{"city": "Lima"}]] * 2
    assert len(server.bodies) == 3


class ToollessModel(HttpChatModel):
    """As a provider's package for models without tool calling."""

    def bind_tools(self, tools: object, *, tool_choice: str | None = None, **kwargs: object) -> Never:
        raise NotImplementedError


@pytest.mark.parametrize("stream", [False, True])
async def test_package_without_tools_gets_them_in_the_prompt(
    server: ModelServer, rules: list[Rule], stream: bool
) -> None:
    rules += [Rule(CALL_IN_WORDS)]

    replies = await in_words(
        LangChainModel("acme:small", lambda _, __: ToollessModel(base_url=server.url)), stream=stream
    )

    assert [len(reply.tool_calls) for reply in replies] == [1, 1]


@pytest.mark.parametrize(("answer", "reason"), [(Answer(""), "empty"), (Answer(body="garbage"), "can't be read")])
async def test_answer_that_is_empty_or_not_json_is_an_invalid_response(
    model: LangChainModel, rules: list[Rule], answer: Answer, reason: str
) -> None:
    rules += [Rule(answer)]

    with pytest.raises(LLMInvalidResponse, match=reason):
        await model.respond(ASKED)


async def test_temperature_and_token_limit_are_sent(
    model: LangChainModel, server: ModelServer, rules: list[Rule]
) -> None:
    rules += [Rule(FINE)]

    await model.respond(replace(ASKED, response=None, temperature=0.3, max_tokens=50))

    assert (server.bodies[0]["temperature"], server.bodies[0]["max_tokens"]) == (0.3, 50)


async def test_retry_after_header_is_parsed(model: LangChainModel, rules: list[Rule]) -> None:
    rules += [Rule(Answer(status=429, body="{}", headers={"Retry-After": "7"}))]

    with pytest.raises(LLMServerError) as caught:
        await model.respond(ASKED)

    assert (caught.value.status, caught.value.retry_after) == (429, 7.0)


class UnusableModel(HttpChatModel):
    """As a provider's package with an error of its own, which has no HTTP status."""

    async def _agenerate(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no such region")


async def test_error_without_a_status_is_not_asked_again() -> None:
    model = LangChainModel("acme:small", lambda _, __: UnusableModel(base_url="http://127.0.0.1:1"))

    with pytest.raises(LLMServerError, match="RuntimeError: no such region") as caught:
        await model.respond(replace(ASKED, response=None))

    assert not caught.value.retryable


class KeyedModel(HttpChatModel):
    """As a provider's package: it knows which variable its key comes from."""

    api_key: SecretStr

    @property
    def lc_secrets(self) -> dict[str, str]:
        return {"api_key": "ACME_API_KEY", "servers": "ACME_SERVERS"}


@pytest.mark.parametrize(("key", "remedy"), [("", "Set ACME_API_KEY."), ("attempts", "")])
async def test_connection_error_names_cause_and_missing_key(key: str, remedy: str) -> None:
    nowhere = KeyedModel(base_url="http://127.0.0.1:1", api_key=SecretStr(key))
    model = LangChainModel("acme:small", lambda _, __: nowhere)

    with pytest.raises(LLMConnectionError, match=r"to the provider failed: All connection .+ failed\.") as caught:
        await model.respond(replace(ASKED, response=None))

    assert caught.value.remedy == remedy
    assert (key or "…") not in caught.value.message
