"""Explanations name what was seeded as the first cause, and nothing where nothing went wrong."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.integration.explanation.seeded_calls import CALL_FAILURES
from tests.integration.explanation.seeded_decisions import DECISION_FAILURES
from tests.integration.explanation.seeded_languages import FOREIGN_FAILURES, FOREIGN_SUCCESSES
from tests.integration.explanation.seeded_permissions import PERMISSION_FAILURES
from tests.integration.explanation.seeded_successes import OFFICE_SUCCESSES
from tests.integration.explanation.seeded_town import TOWN_FAILURES, TOWN_SUCCESSES
from tests.support.seeded_runs import Explained, SeededRun, explain_seeded_runs

FAILURES = (*CALL_FAILURES, *DECISION_FAILURES, *PERMISSION_FAILURES, *TOWN_FAILURES, *FOREIGN_FAILURES)
SUCCESSES = (*OFFICE_SUCCESSES, *TOWN_SUCCESSES, *FOREIGN_SUCCESSES)


def _name(run: SeededRun) -> str:
    return f"{run.cause or 'none'}-{run.name}"


@pytest.fixture(scope="module")
def explained(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Explained]:
    folder: Path = tmp_path_factory.mktemp("seeded")
    return asyncio.run(explain_seeded_runs(module_database_url, folder, (*FAILURES, *SUCCESSES)))


@pytest.mark.parametrize("run", FAILURES, ids=_name)
def test_cause_that_was_seeded_is_named_first_with_rows_that_exist(
    run: SeededRun, explained: Mapping[str, Explained]
) -> None:
    seen = explained[run.name]

    assert len(seen.tasks) >= 5
    assert seen.found == run.cause
    cause = seen.explanation.cause
    assert cause is not None
    assert cause == seen.explanation.causes[0]
    assert [name for name in run.named if name in cause.text]
    assert cause.refs
    assert [ref for ref in cause.refs if not seen.exists(ref.kind, ref.id)] == []


@pytest.mark.parametrize("run", SUCCESSES, ids=_name)
def test_run_that_came_to_a_good_end_names_no_cause(run: SeededRun, explained: Mapping[str, Explained]) -> None:
    seen = explained[run.name]

    assert len(seen.tasks) >= 5
    assert (seen.stream.status, seen.explanation.cause) == ("succeeded", None)
