"""Model names and default models."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starling.core.errors import ConfigurationError
from starling.core.llm import ModelRole
from starling.core.settings.schema import Settings
from starling.infra.llm.chat_model import ModelName
from starling.infra.llm.model_selection import endpoints, names_by_role, parse_model_name, supervisor_names
from tests.support.model_script import Script
from tests.support.model_server import ModelServer

NOWHERE = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OLLAMA_BASE_URL", "STARLING_MODEL"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("text", "provider", "model"),
    [
        ("openai:gpt-4.1-mini", "openai", "gpt-4.1-mini"),
        ("openai/gpt-4o", "openai", "gpt-4o"),
        ("ollama:llama3.2:3b", "ollama", "llama3.2:3b"),
        ("ollama/llama3.2:3b", "ollama", "llama3.2:3b"),
        ("vllm:meta/llama", "vllm", "meta/llama"),
        (" OpenAI : gpt-4o ", "openai", "gpt-4o"),
    ],
)
def test_model_name_with_colon_or_slash_is_parsed(text: str, provider: str, model: str) -> None:
    assert parse_model_name(text) == ModelName(provider, model)


@pytest.mark.parametrize("text", ["", "gpt-4o", ":gpt-4o", "openai:", "/", " : "])
def test_invalid_model_name_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="provider:model"):
        parse_model_name(text)


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        name = parse_model_name(text)
    except ConfigurationError:
        return
    assert parse_model_name(str(name)) == name


async def test_role_setting_overrides_the_general_model() -> None:
    settings = Settings(model=("openai:small",), model_coding=("openai:large", "ollama:code"))

    named = await names_by_role(settings)

    assert named[ModelRole.ROUTER] == named[ModelRole.REASONING] == (ModelName("openai", "small"),)
    assert named[ModelRole.CODING] == (ModelName("openai", "large"), ModelName("ollama", "code"))


def test_models_of_supervisors_are_none_unless_they_are_set() -> None:
    settings = Settings.model_validate({"model": "openai:small", "model_supervisor": "openai/large, ollama:code"})

    assert supervisor_names(settings) == (ModelName("openai", "large"), ModelName("ollama", "code"))
    assert supervisor_names(Settings(model=("openai:small",))) == ()


async def test_openai_is_the_default_with_a_key() -> None:
    settings = Settings.model_validate({"openai_api_key": "sk-1"})

    named = await names_by_role(settings)

    assert named[ModelRole.ROUTER] == (ModelName("openai", "gpt-4.1-mini"),)


async def test_ollama_with_the_model_is_the_default() -> None:
    async with ModelServer(Script(), pulled=["llama3.2:3b"]) as server:
        named = await names_by_role(Settings(ollama_base_url=server.root))

    assert named[ModelRole.ROUTER] == (ModelName("ollama", "llama3.2:3b"),)


async def test_ollama_without_the_model_is_not_the_default(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with ModelServer(Script(), pulled=["qwen3:8b"]) as server:
            named = await names_by_role(Settings(ollama_base_url=server.root))

    assert named[ModelRole.ROUTER] == (ModelName("offline", "rules"),)
    assert "ollama pull llama3.2:3b" in caplog.text


async def test_offline_rules_are_the_default_without_key_and_ollama() -> None:
    named = await names_by_role(Settings(ollama_base_url=NOWHERE))

    assert named[ModelRole.CODING] == (ModelName("offline", "rules"),)


def test_ollama_is_called_at_its_openai_endpoint() -> None:
    assert endpoints(Settings(ollama_base_url="http://gpu:11434/"))["ollama"].base_url == "http://gpu:11434/v1"
    assert endpoints(Settings(ollama_base_url="http://gpu:11434/v1"))["ollama"].base_url == "http://gpu:11434/v1"


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://host/v1", "http://", "http://[::1"])
def test_invalid_address_is_refused(url: str) -> None:
    settings = Settings.model_validate({"providers": {"vllm": {"base_url": url}}})

    with pytest.raises(ConfigurationError, match=r"providers\.vllm\.base_url"):
        endpoints(settings)


def test_key_that_is_invalid_in_a_header_is_refused() -> None:
    settings = Settings.model_validate({"openai_api_key": "sk-1\nX-Other: 2"})

    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY") as caught:
        endpoints(settings)

    assert "sk-1" not in str(caught.value)
