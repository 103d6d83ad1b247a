"""The clock of leases."""

import time

import pytest

from starling.core.clock import lease_time


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="only Linux says how long it has slept")
def test_the_clock_of_leases_counts_the_sleep_of_the_machine() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)

    now = lease_time()

    assert before <= now <= time.clock_gettime(time.CLOCK_BOOTTIME)
