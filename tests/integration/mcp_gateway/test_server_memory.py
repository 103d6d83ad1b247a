"""Servers that use more memory than they may are ended; idle ones make room for others."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import suppress
from typing import Any

import psutil
import pytest

from mcp_gateway.sessions import server_memory
from mcp_gateway.sessions.server_memory import memory_of
from starling.core.tool_calls import Observation
from tests.support.gateway_harness import GatewayHarness, call, named, running_shims, wait_for

MIB = 2**20


@pytest.fixture(autouse=True)
def frequent_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_memory, "BUSY_SECONDS", 0.1)
    monkeypatch.setattr(server_memory, "REST_SECONDS", 0.1)


@pytest.mark.parametrize("effect", ["read", "unsafe"])
async def test_server_over_its_memory_is_ended_and_its_call_neither_repeated_nor_the_server_started_at_once(
    harness: GatewayHarness, effect: str
) -> None:
    async with harness.listing(harness.misbehaving("growing", effect=effect), memory_bytes_per_server=100 * MIB) as (
        gateway,
        listing,
    ):
        ended = await call(gateway, listing, "act")
        refused = await call(gateway, listing, "act")
        await wait_for(lambda: not running_shims())

    assert (ended.observation, ended.code) == (Observation.CONNECTION_LOST, "memory_limit")
    assert "MiB of memory, more than `limits.memory_bytes_per_server` (100 MiB)" in ended.text
    assert ("Whether it changed anything is unknown" in ended.text) == (effect == "unsafe")
    assert refused.observation is Observation.NOT_SENT
    assert "It failed once and is tried again in" in refused.text
    assert harness.recorded() == ["called"]


async def test_server_idle_for_longest_is_closed_while_all_use_too_much_memory(harness: GatewayHarness) -> None:
    async with harness.gateway(server_memory_bytes=400 * MIB) as gateway:
        listings = await gateway.catalog.sync({name: harness.misbehaving("holding") for name in "abc"})
        pids = [int((await call(gateway, named(listings, name), "act")).text) for name in "abc"]
        await wait_for(lambda: not psutil.pid_exists(pids[0]))

        assert [psutil.pid_exists(pid) for pid in pids] == [False, True, True]
        assert gateway.open_sessions == 2  # none of the others is closed while the first one is still ending


async def test_no_server_is_started_while_those_in_use_use_too_much_memory(
    harness: GatewayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = list[int]()

    def noted(*limits: Any) -> Mapping[int, int]:
        sizes = memory_of(*limits)
        measured.append(sum(sizes.values()))
        return sizes

    monkeypatch.setattr(server_memory, "memory_of", noted)
    async with harness.gateway(server_memory_bytes=100 * MIB) as gateway:
        listings = await gateway.catalog.sync({"big": harness.misbehaving("growing"), "other": harness.recording()})
        calling = asyncio.ensure_future(call(gateway, named(listings, "big"), "act"))
        await wait_for(lambda: "called" in harness.recorded() and max(measured, default=0) > 100 * MIB)
        refused = await call(gateway, named(listings, "other"), "pid")
        calling.cancel()
        with suppress(asyncio.CancelledError):
            await calling

    assert refused.observation is Observation.NOT_SENT
    assert "all of them are in use" in refused.text


@pytest.fixture
def forked() -> Generator[int]:
    """A process that holds 64 MiB, which three others share with it."""
    script = "import os, signal; x = b'x' * (64 * 2**20); os.fork(); os.fork(); print(flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(4):
            process.stdout.readline()
        yield process.pid
        for each in (*psutil.Process(process.pid).children(recursive=True), process):
            each.kill()


def test_memory_that_processes_of_a_server_share_counts_once_where_it_matters(forked: int) -> None:
    [exact] = memory_of([forked], each=100 * MIB, together=1000 * MIB).values()
    [upper_bound] = memory_of([forked], each=10_000 * MIB, together=10_000 * MIB).values()

    assert 64 * MIB < exact < 100 * MIB
    assert upper_bound > 4 * 64 * MIB


def test_memory_of_processes_that_have_ended_is_nothing() -> None:
    assert memory_of([2**22 + 1], each=1, together=1) == {2**22 + 1: 0}
    assert os.getpid() not in memory_of([1], each=1, together=1)
