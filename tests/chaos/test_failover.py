"""Primaries killed again and again, each with a synchronous replica: nothing is lost, done twice, or cut off.

`tests/e2e/test_failover.py` is the short form.
"""

from pathlib import Path

import pytest

from tests.chaos.experiment import ExperimentPlan, run_experiment
from tests.chaos.nemesis import FAILOVER
from tests.chaos.report import report


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_no_invariant_is_violated_when_primaries_are_killed_and_replicas_promoted(open_folder: Path) -> None:
    kinds = [FAILOVER, "worker killed", "API killed", "MCP server killed", "Postgres crashed", FAILOVER]
    plan = ExperimentPlan(seed=1, faults=18, seconds=60, only=kinds, replicated=True)

    result = await run_experiment(plan, open_folder)

    assert not result.violations, report(result)
    assert result.nemesis.done[FAILOVER] == 6
