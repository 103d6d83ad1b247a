"""Trouble with models: told when it comes, not for as long as it lasts."""

from brain.journaled_model import ModelWarnings
from starling.core.llm import ModelRequest, ModelRole

REVIEW, CALL = ModelRequest(ModelRole.REASONING, ()), ModelRequest(ModelRole.ROUTER, ())
GONE, SKIPPED = "Model a: it can't be reached.", "Model a is skipped for a while because it did not answer recently."


def test_what_lasts_is_told_once_whoever_meets_it() -> None:
    model_warnings = ModelWarnings()

    told = [
        model_warnings.new_warnings(*answer)
        for answer in ((REVIEW, [GONE]), (CALL, [SKIPPED]), (REVIEW, [SKIPPED]), (CALL, ()))
    ]

    assert told == [[GONE], [SKIPPED], [], []]


def test_what_was_over_and_comes_again_is_told_again() -> None:
    model_warnings = ModelWarnings()

    told = [
        model_warnings.new_warnings(REVIEW, warnings)
        for warnings in ([SKIPPED], [SKIPPED], [], [SKIPPED], [GONE], [SKIPPED])
    ]

    assert told == [[SKIPPED], [], [], [SKIPPED], [GONE], [SKIPPED]]
