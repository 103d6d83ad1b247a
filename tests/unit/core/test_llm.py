"""Values of model requests."""

import pytest

from starling.core.llm import PromptVersion


@pytest.mark.parametrize(
    "wording",
    [
        PromptVersion("qa", "ab" * 32),
        PromptVersion("supervisor", "cd" * 32, "langfuse", 3, "production", "agent_orchestrator"),
    ],
)
def test_wording_is_read_back_without_what_a_later_version_added(wording: PromptVersion) -> None:
    assert PromptVersion.from_json({**wording.to_json(), "author": "somebody"}) == wording
