"""Postgres is restored from a dump, or to a moment, under load: every invariant of chaos holds afterwards.

`tests/e2e/test_restore.py` is the short form, and shows what becomes of that which a backup can't know.
"""

from pathlib import Path

import pytest

from tests.chaos.invariants import violations
from tests.chaos.report import described
from tests.chaos.restore import restore_under_load
from tests.support.backups import Take, dump, moment


@pytest.mark.soak
@pytest.mark.timeout(420)
@pytest.mark.parametrize("take", [moment, dump])
async def test_restore_under_load_loses_repeats_and_breaks_nothing(open_folder: Path, take: Take) -> None:
    found = await restore_under_load(take, open_folder, callers=2)

    violated = violations(found)
    assert not violated, described(violated, found)
