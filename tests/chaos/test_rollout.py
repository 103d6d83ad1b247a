"""The former version and this one side by side on one database, under load, judged by the invariants of chaos.

The former version is the newest earlier commit with another revision of the schema.
"""

import subprocess
from pathlib import Path

import pytest

from tests.chaos.invariants import violations
from tests.chaos.report import described
from tests.chaos.rollout import roll_out
from tests.support.soak import rounds
from tests.support.versions import THIS, HistoryMissingError, Version, previous_version


@pytest.fixture
def former(open_folder: Path) -> Version:
    try:
        return previous_version(open_folder / "former")
    except HistoryMissingError as error:
        pytest.skip(str(error))


@pytest.mark.timeout(420)
@rounds(1, soak=6, name="callers")
async def test_rollout_loses_repeats_and_breaks_nothing(former: Version, open_folder: Path, callers: int) -> None:
    found = await roll_out(former, open_folder, callers=callers, returns=callers)

    assert former.revision < THIS.revision
    violated = violations(found)
    assert not violated, described(violated, found)
    # the only stream of a few callers may end with its run while the API drains
    assert callers == 1 or any(reading.resumed for reading in found.history.readings)


def test_a_shallow_clone_has_no_former_version(tmp_path: Path) -> None:
    folder = tmp_path / "migrations" / "versions"
    folder.mkdir(parents=True)
    (folder / "0002_last.py").touch()
    author = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    for command in (("init", "-q"), ("add", "."), (*author, "commit", "-qm", "all that the clone has")):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)

    with pytest.raises(HistoryMissingError, match="lacks the earlier version"):
        previous_version(tmp_path / "former", tmp_path)
