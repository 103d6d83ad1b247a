"""The clock used for leases."""

import time

import pytest

from starling.core.clock import lease_time


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="CLOCK_BOOTTIME exists on Linux only")
def test_lease_time_includes_time_in_which_the_machine_was_suspended() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)

    now = lease_time()

    assert before <= now <= time.clock_gettime(time.CLOCK_BOOTTIME)
