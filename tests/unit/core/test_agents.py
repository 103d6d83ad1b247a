"""What a custom agent may be called and how its configuration is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from starling.core.agents import LLMAgentConfig


@pytest.mark.parametrize("name", ["a", "0", "release_notes", "a-b", "x" * 48])
def test_a_name_is_small_letters_digits_dashes_and_underscores(name: str) -> None:
    assert LLMAgentConfig(id=name).id == name


@pytest.mark.parametrize("name", ["", "-a", "_a", "A", "ä", "a b", "a\n", "a.b", "a/b", "x" * 49, "mcp_agent_time"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        LLMAgentConfig(id=name)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("openai/gpt-4o", "openai:gpt-4o"),
        ("openai:gpt-4o", "openai:gpt-4o"),
        ("vllm:meta/llama", "vllm:meta/llama"),
        ("ollama/llama3.2:3b", "ollama:llama3.2:3b"),
        ("nonsense", "nonsense"),
    ],
)
def test_both_ways_to_write_a_model_are_one(written: str, meant: str) -> None:
    assert LLMAgentConfig(id="a", llm_model=written).llm_model == meant


def test_the_same_configuration_has_the_same_hash() -> None:
    one = LLMAgentConfig.model_validate({"id": "a", "tools": ["time.*"]})
    same = LLMAgentConfig.model_validate({"tools": ["time.*"], "type": "llm", "id": "a", "render_policy": None})

    assert one.hash == same.hash
    assert one.hash != one.model_copy(update={"tools": ()}).hash


@given(st.text(min_size=1))
def test_every_instruction_can_be_stored(text: str) -> None:
    try:
        config = LLMAgentConfig(id="a", behavior_template=text)
    except ValidationError:
        assert not text.strip() or any("\ud800" <= letter <= "\udfff" for letter in text) or len(text) > 20_000
    else:
        assert config.behavior_template
        assert "\x00" not in config.behavior_template
        assert config.hash
