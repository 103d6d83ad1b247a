"""Names of processes, and whether these have ended."""

import os
import subprocess
import sys

from starling.core.ids import has_ended, process_name

_NAME = [sys.executable, "-c", "from starling.core.ids import process_name; print(process_name())"]


def test_process_has_one_name() -> None:
    assert process_name() == process_name()


def test_process_that_was_not_reaped_has_ended() -> None:
    with subprocess.Popen(_NAME, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        name = process.stdout.read().strip()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        assert has_ended(name)


def test_only_a_process_of_this_machine_that_is_gone_has_certainly_ended() -> None:
    ended = subprocess.run(_NAME, capture_output=True, text=True, check=True).stdout.strip()
    of_another_machine = f"elsewhere:{ended.partition(':')[2]}"
    of_another_start = f"{ended.rpartition(':')[0]}:000000000000"

    without_start, _, _ = process_name().rpartition(".")  # as earlier versions had it

    names = [process_name(), without_start, of_another_machine, of_another_start, "test", ended, f"{without_start}.1"]

    assert [has_ended(name) for name in names] == [False, False, False, False, False, True, True]
