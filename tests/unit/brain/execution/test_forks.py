"""What calls get in the trial that a fork is."""

from brain.execution.forks import trial_of
from starling.core.forks import ForkChanges, ForkOrigin
from starling.core.tool_calls import CallState, Effect, Observation
from starling.core.tools import ToolOutcome
from starling.infra.postgres.runs.ledger import LedgerRow


def sent(index: int, state: CallState, text: str, *, settled: bool = True) -> LedgerRow:
    observed = Observation.COMPLETED if state is CallState.SUCCEEDED else Observation.TOOL_ERROR
    outcome = ToolOutcome(observed, text).to_json()
    return LedgerRow(text, "t1", 0, index, "shop.order", Effect.UNSAFE, {}, state, outcome, settled=settled)


def test_trial_answers_with_successes_before_failures_and_with_nothing_that_is_in_doubt() -> None:
    calls = [
        sent(0, CallState.FAILED, "sold out"),
        sent(1, CallState.SUCCEEDED, "ordered"),
        sent(2, CallState.IN_DOUBT, "lost"),
        sent(3, CallState.FAILED, "never settled", settled=False),
    ]

    trial = trial_of(ForkOrigin(run="r", at="start", changes=ForkChanges(), live=False), calls)

    assert trial is not None
    assert [fixture.outcome and (fixture.outcome.text, fixture.outcome.status) for fixture in trial.fixtures] == [
        ("ordered", "succeeded"),
        ("sold out", "failed"),
    ]
