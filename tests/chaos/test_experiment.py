"""One short chaos experiment with every kind of fault: nothing is lost, done twice, or visible to other tenants.

`make chaos` runs ten minutes with a new seed each time.
"""

from pathlib import Path

import pytest

from tests.chaos.experiment import ExperimentPlan, run_experiment
from tests.chaos.nemesis import KINDS
from tests.chaos.report import report


@pytest.mark.timeout(420)
async def test_no_invariant_is_violated_by_any_kind_of_fault(open_folder: Path) -> None:
    # a seed with which it heals quickly: services are stopped before they are killed, kill switches come late
    plan = ExperimentPlan(seed=146435, faults=len(KINDS), seconds=9, callers=3, prune_age=4)

    result = await run_experiment(plan, open_folder)

    assert not result.violations, report(result)
    assert result.nemesis.done.total() == len(KINDS)
