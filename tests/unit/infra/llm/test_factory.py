"""Models built from settings."""

from dataclasses import replace

import pytest

from starling.core.errors import ConfigurationError
from starling.core.llm import Message, ModelReply, ModelRequest, ModelRole, TextDelta, TokenUsage
from starling.core.settings.schema import Settings
from starling.infra.llm.factory import open_models
from starling.infra.llm.model_selection import check_models
from tests.support.model_script import Answer, Rule, Script, When
from tests.support.model_server import ModelServer

ASKED = ModelRequest(ModelRole.CODING, (Message("user", "Say hello."),), timeout=20)


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OLLAMA_BASE_URL", "STARLING_MODEL", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def settings(**values: object) -> Settings:
    return Settings.model_validate({"ollama_base_url": "http://127.0.0.1:1", **values})


async def test_custom_provider_is_called_with_its_key() -> None:
    async with ModelServer(Script(Rule(Answer("Hello."), When(model="meta/llama")))) as server:
        vllm = {"base_url": server.url, "api_key": "of-vllm"}
        async with open_models(settings(model="vllm:meta/llama", providers={"vllm": vllm})) as models:
            reply = await models.respond(ASKED)

    assert reply == ModelReply("Hello.", usage=reply.usage, model="vllm:meta/llama")
    assert server.requests[0].headers["Authorization"] == "Bearer of-vllm"


async def test_each_role_uses_its_own_model() -> None:
    async with ModelServer(Script(Rule(Answer("Hello.")))) as server:
        values = {"model": "ollama:small", "model_coding": "ollama:code, ollama:small"}
        async with open_models(settings(**values, ollama_base_url=server.root)) as models:
            reply = await models.respond(ASKED)
            described = [models.describe(role) for role in ModelRole]

    assert reply.model == "ollama:code"
    assert described == ["ollama:small", "ollama:small", "ollama:code"]


async def test_usage_that_a_configured_endpoint_does_not_report_is_estimated() -> None:
    async with (
        ModelServer(Script(Rule(Answer("Hello.", usage=(0, 0))))) as server,
        open_models(settings(model="ollama:small", ollama_base_url=server.root)) as models,
    ):
        reply = await models.respond(ASKED)

    assert reply.usage == TokenUsage(3, 2, estimated=True)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("gpt-4o", "not of the form provider:model"),
        ("offline:magic", "There is no model offline:magic"),
        ("openai:gpt-4o", "OPENAI_API_KEY"),
        ("anthropic:claude", "pip install langchain-anthropic"),
        ("nonsense:x", "offline:rules, openai:<model>, ollama:<model>, or a provider"),
    ],
)
async def test_impossible_model_is_refused(model: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        async with open_models(settings(model=model)):
            pass


async def test_offline_rules_stream_groups_of_words_by_default() -> None:
    async with open_models(settings()) as models:
        items = [item async for item in models.stream_respond(ASKED)]

    reply = items[-1]
    assert isinstance(reply, ModelReply)
    assert reply.model == "offline:rules"
    assert "".join(item.text for item in items if isinstance(item, TextDelta)) == reply.content


@pytest.mark.parametrize("named", ["nonsense", "offline:other", "nobody:small", "openai:gpt"])
def test_impossible_model_is_detected_without_a_request(named: str) -> None:
    with pytest.raises(ConfigurationError):
        check_models(settings(model=("offline:rules",), model_coding=("offline:rules", named)))


async def test_model_named_by_a_request_is_built_on_first_use() -> None:
    async with ModelServer(Script(Rule(Answer("Hello.")))) as server:
        values = settings(model="offline:rules", ollama_base_url=server.root)
        async with open_models(values) as models:
            replies = [await models.respond(replace(ASKED, model=name)) for name in ("ollama/code", "ollama:code")]

    assert {reply.model for reply in replies} == {"ollama:code"}


async def test_removed_model_falls_back_to_the_models_of_the_role() -> None:
    async with open_models(settings(model="offline:rules")) as models:
        reply = await models.respond(replace(ASKED, model="openai:gpt-4o"))

    assert reply.model == "offline:rules"
    assert "needs an API key" in reply.warnings[0]
