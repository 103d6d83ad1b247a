"""The state machine of tool calls: every state, every observation, every effect."""

from itertools import product

import pytest

from starling.core.tool_calls import (
    AFTER_RUN_END,
    TRANSITIONS,
    UNCERTAIN,
    CallState,
    Effect,
    InvalidTransitionError,
    Observation,
    after_restart,
    needs_a_person,
    next_state,
    refuses_repeat,
    state_after_answer,
)

# Written out a second time, state by state, so that a changed transition is a changed test.
READ = {
    "announced": {
        "succeeded": "completed",
        "failed": "not_sent rejected tool_error invalid_result internal_error timed_out connection_lost platform_error",
    },
}
UNSAFE = {
    "announced": {"intended": "intended"},
    "intended": {"dispatched": "sent", "reused": "reused", "failed": "not_sent platform_error"},
    "dispatched": {
        "succeeded": "completed",
        "failed": "not_sent rejected tool_error",
        "unusable": "invalid_result internal_error",
        "in_doubt": "not_sent_again timed_out connection_lost interrupted platform_error",
    },
    "unusable": {"succeeded": "found_done", "intended": "found_not_done"},
    "in_doubt": {"succeeded": "found_done", "intended": "found_not_done", "in_doubt": "given_up"},
}
IDEMPOTENT = UNSAFE | {"dispatched": UNSAFE["dispatched"] | {"dispatched": "sent"}}
EXPECTED = {
    (effect, state, observation): after
    for effect, states in (("read", READ), ("idempotent", IDEMPOTENT), ("unsafe", UNSAFE))
    for state, results in states.items()
    for after, observations in results.items()
    for observation in observations.split()
}


@pytest.mark.parametrize(("effect", "state", "observation"), list(product(Effect, CallState, Observation)))
def test_each_state_and_observation_leads_to_the_listed_state_or_is_an_error(
    effect: Effect, state: CallState, observation: Observation
) -> None:
    expected = EXPECTED.get((effect.value, state.value, observation.value))

    if expected is None:
        with pytest.raises(InvalidTransitionError, match=f"effect {effect} can't be {observation} while it is {state}"):
            next_state(state, observation, effect)
    else:
        assert next_state(state, observation, effect) == expected


def test_an_answer_to_a_read_is_never_uncertain() -> None:
    assert not UNCERTAIN & {state_after_answer(observation, Effect.READ) for observation in READ_OBSERVATIONS}


READ_OBSERVATIONS = list(TRANSITIONS[Effect.READ][CallState.ANNOUNCED])


def test_after_a_restart_only_an_idempotent_call_is_sent_again() -> None:
    sent_again = next_state(CallState.DISPATCHED, after_restart(Effect.IDEMPOTENT), Effect.IDEMPOTENT)
    doubted = next_state(CallState.DISPATCHED, after_restart(Effect.UNSAFE), Effect.UNSAFE)

    assert (sent_again, doubted) == (CallState.DISPATCHED, CallState.IN_DOUBT)


def test_only_an_unsafe_call_in_doubt_needs_a_person() -> None:
    found = {(state, effect) for state, effect in product(CallState, Effect) if needs_a_person(state, effect)}

    assert found == {(CallState.IN_DOUBT, Effect.UNSAFE)}


@pytest.mark.parametrize(
    ("state", "effect", "found", "same_key"),
    list(product(CallState, [Effect.IDEMPOTENT, Effect.UNSAFE], [False, True], [False, True])),
)
def test_a_repeat_is_refused_after_an_uncertain_call_or_one_that_was_found_done(
    state: CallState, effect: Effect, found: bool, same_key: bool
) -> None:
    tells_repetitions = effect is Effect.IDEMPOTENT and same_key
    expected = (
        state is CallState.UNUSABLE
        or (state is CallState.IN_DOUBT and not tells_repetitions)
        or (state is CallState.SUCCEEDED and found)
    )

    assert refuses_repeat(state, effect, found=found, same_key=same_key) is expected


def test_end_of_a_run_leaves_dispatched_calls_and_those_in_doubt_in_doubt() -> None:
    assert AFTER_RUN_END == {CallState.DISPATCHED: CallState.IN_DOUBT, CallState.IN_DOUBT: CallState.IN_DOUBT}
