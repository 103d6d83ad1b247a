"""Which policy holds for a result: the tool's, the agent's, that of governance, and the caller's."""

from itertools import product

import pytest

from brain.agents.turn.reflection import ReviewPolicies
from starling.core.tool_calls import ReviewPolicy

POLICIES: tuple[ReviewPolicy | None, ...] = (None, "never", "risky", "always")
STRICTNESS = ["never", "risky", "always"]


@pytest.mark.parametrize(
    ("governance", "agent", "tool", "caller", "policy"),
    [
        # nobody set one: the default, or what the caller asks for
        (None, None, None, None, "always"),
        (None, None, None, "risky", "risky"),
        (None, None, None, "never", "never"),
        # a maker or an admin set one: the caller can only make it stricter
        (None, "risky", None, None, "risky"),
        (None, "risky", None, "never", "risky"),
        (None, "never", None, "risky", "risky"),
        (None, "never", None, "always", "always"),
        (None, "always", None, "never", "always"),
        (None, None, "never", None, "never"),
        (None, None, "never", "always", "always"),
        (None, None, "always", "never", "always"),
        # the tool's comes before its agent's
        (None, "always", "never", None, "never"),
        (None, "never", "risky", None, "risky"),
        # governance sets the policy of agents without one, and the least that is reviewed
        ("risky", None, None, None, "risky"),
        ("risky", None, None, "always", "always"),
        ("risky", None, None, "never", "risky"),
        ("risky", "never", None, None, "risky"),
        ("always", None, "never", "never", "always"),
        ("risky", "always", None, "never", "always"),
        ("never", None, None, None, "never"),
        ("never", None, None, "risky", "risky"),
        ("never", "risky", None, None, "risky"),
    ],
)
def test_policy_of_a_result(
    governance: ReviewPolicy | None,
    agent: ReviewPolicy | None,
    tool: ReviewPolicy | None,
    caller: ReviewPolicy | None,
    policy: ReviewPolicy,
) -> None:
    assert ReviewPolicies(governance, agent, caller).policy(tool) == policy


def test_no_caller_gets_less_than_what_was_set() -> None:
    for governance, agent, tool, caller in product(POLICIES, repeat=4):
        found = STRICTNESS.index(ReviewPolicies(governance, agent, caller).policy(tool))
        unasked = STRICTNESS.index(ReviewPolicies(governance, agent).policy(tool))
        is_set = any(policy is not None for policy in (governance, agent, tool))
        assert found >= STRICTNESS.index(governance or "never")
        assert found >= (unasked if is_set else STRICTNESS.index(caller or "always"))


@pytest.mark.parametrize(("governance", "agent", "tool", "caller"), [*product(POLICIES, repeat=4)])
def test_agent_whose_maker_demands_a_review_is_always_reviewed(
    governance: ReviewPolicy | None,
    agent: ReviewPolicy | None,
    tool: ReviewPolicy | None,
    caller: ReviewPolicy | None,
) -> None:
    assert ReviewPolicies(governance, agent, caller, demanded=True).policy(tool) == "always"
