"""The tokens that a run may use: the platform's limit, and a lower one of the caller."""

import pytest

from brain.interrupts.budget import tightest_budget


@pytest.mark.parametrize(
    ("most", "requested", "allowed"),
    [(200, None, 200), (200, 50, 50), (200, 500, 200), (0, None, None), (0, 500, 500)],
    ids=["default", "lower", "higher", "none", "own"],
)
def test_caller_may_lower_the_limit_of_tokens(most: int, requested: int | None, allowed: int | None) -> None:
    assert tightest_budget(most, requested) == allowed
