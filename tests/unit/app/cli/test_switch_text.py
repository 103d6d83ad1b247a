"""What `starling switch` says it did."""

import pytest

from starling.app.cli.switch import outcome_text
from starling.infra.postgres.kill_switches import Target


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (Target("tenant", "*", "*"), "Tool calls of all tenants are switched off."),
        (Target("tenant", "shop", "*"), "The tenant shop is switched off."),
        (Target("server", "time", "*"), "The server time is switched off."),
        (Target("agent", "clerk", "shop"), "The agent clerk of tenant shop is switched off."),
    ],
)
def test_what_was_switched_is_named_in_words(target: Target, text: str) -> None:
    assert outcome_text(target, "switched off") == text
