"""The circuit breaker counts repeated selections of agents, and progress resets it."""

from typing import Any

import pytest

from brain.planning import decision_update as circuit_breaker
from brain.state import GraphState, TaskOutcome, after, initial_state


def outcome(status: Any) -> TaskOutcome:
    return TaskOutcome(task_id="t1", agent="able", status=status, output="", reason="", attempts=1, tools=[])


def select(state: GraphState, *agents: str) -> GraphState:
    """Return the state after one more selection of these agents."""
    return after(state, {"routing": circuit_breaker.count_selection(state, set(agents))})


def is_open(state: GraphState) -> bool:
    return circuit_breaker.is_open(state["routing"])


@pytest.fixture
def planned() -> GraphState:
    return after(initial_state("Hi."), {"plan": ["look"], "results": [outcome("failed")]})


@pytest.mark.parametrize(
    ("agents", "opens"), [(("first", "second") * 2, True), (("first", "second", "third", "fourth"), False)]
)
def test_breaker_opens_for_a_cycle_of_agents_and_not_for_new_ones(
    planned: GraphState, agents: tuple[str, ...], opens: bool
) -> None:
    state = planned
    for agent in agents:
        state = select(state, agent)

    assert is_open(state) == opens


@pytest.mark.parametrize(
    "progress",
    [{"plan": ["look twice"]}, {"results": [outcome("approved")]}],
    ids=["plan", "approval"],
)
def test_progress_resets_the_count(planned: GraphState, progress: dict[str, Any]) -> None:
    state = select(select(planned, "able"), "able")

    state = select(after(state, progress), "able")
    state = select(state, "able")

    assert not is_open(state)


def test_another_failure_is_no_progress(planned: GraphState) -> None:
    state = select(select(planned, "able"), "able")

    state = select(after(state, {"results": [outcome("failed"), outcome("failed")]}), "able")

    assert is_open(state)
