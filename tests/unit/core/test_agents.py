"""Names and configuration of custom agents."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from starling.core.agents import LLMAgentConfig


@pytest.mark.parametrize("name", ["a", "0", "release_notes", "a-b", "x" * 48])
def test_name_of_lower_case_letters_digits_dashes_and_underscores_is_accepted(name: str) -> None:
    assert LLMAgentConfig(id=name).id == name


@pytest.mark.parametrize("name", ["", "-a", "_a", "A", "ä", "a b", "a\n", "a.b", "a/b", "x" * 49, "mcp_agent_time"])
def test_invalid_or_reserved_name_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        LLMAgentConfig(id=name)


def test_stored_name_like_that_of_a_specialist_is_still_read() -> None:
    assert LLMAgentConfig(id="mcp-agent-time").id == "mcp-agent-time"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("openai/gpt-4o", "openai:gpt-4o"),
        ("vllm:meta/llama", "vllm:meta/llama"),
        ("ollama/llama3.2:3b", "ollama:llama3.2:3b"),
        ("nonsense", "nonsense"),
    ],
)
def test_model_with_slash_is_normalized_to_colon(given: str, expected: str) -> None:
    assert LLMAgentConfig(id="a", llm_model=given).llm_model == expected


def test_equal_configurations_have_the_same_hash() -> None:
    one = LLMAgentConfig.model_validate({"id": "a", "tools": ["time.*"]})
    same = LLMAgentConfig.model_validate({"tools": ["time.*"], "type": "llm", "id": "a", "render_policy": None})

    assert one.hash == same.hash
    assert one.hash != one.model_copy(update={"tools": ()}).hash


def test_hash_of_a_configuration_without_runtime_and_persona_is_that_of_earlier_versions() -> None:
    config = LLMAgentConfig(id="a", tools=("time.*",))

    assert config.hash == "a16eaa99c5f50dec94de8b68e7aecb3623683144322fc206a659ca7cd8aad692"


@given(st.text(min_size=1))
def test_accepted_instruction_can_be_stored(text: str) -> None:
    try:
        config = LLMAgentConfig(id="a", behavior_template=text)
    except ValidationError:
        assert not text.strip() or any("\ud800" <= letter <= "\udfff" for letter in text) or len(text) > 20_000
    else:
        assert config.behavior_template
        assert "\x00" not in config.behavior_template
        assert config.hash
