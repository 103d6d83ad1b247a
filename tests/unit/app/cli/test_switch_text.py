"""What `starling switch` says it did."""

import pytest

from starling.app.cli.switch import outcome_text


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (("tenant", "*", "*"), "Tool calls of all tenants are switched off."),
        (("tenant", "shop", "*"), "The tenant shop is switched off."),
        (("server", "time", "*"), "The server time is switched off."),
        (("agent", "clerk", "shop"), "The agent clerk of tenant shop is switched off."),
    ],
)
def test_what_was_switched_is_named_in_words(target: tuple[str, str, str], text: str) -> None:
    assert outcome_text(*target, "switched off") == text
