"""Names of processes, and whether these have ended."""

import subprocess
import sys

from starling.core.ids import has_ended, process_name

_NAME = [sys.executable, "-c", "from starling.core.ids import process_name; print(process_name())"]


def test_only_a_process_of_this_machine_that_is_gone_has_certainly_ended() -> None:
    ended = subprocess.run(_NAME, capture_output=True, text=True, check=True).stdout.strip()
    of_another_machine = f"elsewhere:{ended.partition(':')[2]}"
    of_another_start = f"{ended.rpartition(':')[0]}:000000000000"

    names = [process_name(), of_another_machine, of_another_start, "test", ended]

    assert [has_ended(name) for name in names] == [False, False, False, False, True]
