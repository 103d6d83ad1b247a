"""What `starling switch` says it did."""

import pytest

from starling.app.cli.switch import Kind, outcome_text


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ((Kind.TENANT, "*", "*"), "Tool calls of all tenants are switched off."),
        ((Kind.TENANT, "shop", "*"), "The tenant shop is switched off."),
        ((Kind.SERVER, "time", "*"), "The server time is switched off."),
        ((Kind.AGENT, "clerk", "shop"), "The agent clerk of tenant shop is switched off."),
    ],
)
def test_what_was_switched_is_named_in_words(target: tuple[Kind, str, str], text: str) -> None:
    assert outcome_text(*target, "switched off") == text
