"""Open sessions that were silent for a while are pinged before their next call, and replaced if they don't answer."""

import asyncio
import signal
from contextlib import suppress

import psutil
import pytest

from mcp_gateway.configuration.servers import ServerConfig
from mcp_gateway.sessions import pool
from tests.support.gateway_harness import GatewayHarness, call, running_shims, wait_for

ALWAYS = 1e-9  # seconds of silence


@pytest.fixture
def short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_PING_ANSWER_SECONDS", 0.2)


@pytest.fixture(autouse=True)
def ping_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_PING_AFTER_SECONDS", ALWAYS)


@pytest.mark.usefixtures("short_limit")
async def test_call_of_a_server_that_stopped_is_made_once_by_another_one_also_after_it_continues(
    harness: GatewayHarness,
) -> None:
    async with harness.listing(harness.recording(effect="unsafe")) as (gateway, listing):
        await call(gateway, listing, "pid")
        await wait_for(lambda: len(running_shims()) == 1)
        [shim] = running_shims()
        tree = [*shim.children(recursive=True), shim]
        for process in tree:
            process.send_signal(signal.SIGSTOP)
        outcome = await call(gateway, listing, "record", text="once")
        for process in tree:
            process.send_signal(signal.SIGCONT)
        await wait_for(lambda: not any(map(psutil.Process.is_running, tree)))

    assert outcome.status == "succeeded"
    assert harness.recorded() == ["started", "started", "started", "once"]


@pytest.mark.usefixtures("short_limit")
async def test_callers_of_a_stopped_server_wait_for_one_ping_together(harness: GatewayHarness) -> None:
    async with harness.listing(harness.recording(effect="unsafe")) as (gateway, listing):
        server = psutil.Process(int((await call(gateway, listing, "pid")).text))
        server.send_signal(signal.SIGSTOP)
        waiting = [asyncio.ensure_future(call(gateway, listing, "pid")) for _ in range(4)]
        await asyncio.wait(waiting, timeout=0.05)
        waiting[0].cancel()
        with suppress(asyncio.CancelledError):
            await waiting[0]
        pids = {outcome.text for outcome in await asyncio.gather(*waiting[1:])}

    assert len(pids) == 1
    assert pids != {str(server.pid)}


@pytest.mark.parametrize(("silence", "pings"), [(ALWAYS, 1), (60, 0)])
async def test_session_is_pinged_only_after_a_silence(
    harness: GatewayHarness, monkeypatch: pytest.MonkeyPatch, silence: float, pings: int
) -> None:
    monkeypatch.setattr(pool, "_PING_AFTER_SECONDS", silence)
    async with harness.listing(harness.misbehaving("noting", effect="read")) as (gateway, listing):
        outcomes = [await call(gateway, listing, "act") for _ in range(2)]

    assert [outcome.status for outcome in outcomes] == ["succeeded", "succeeded"]
    assert harness.recorded().count("ping") == pings


async def test_server_that_is_busy_with_a_call_is_not_pinged(harness: GatewayHarness) -> None:
    async with harness.listing(harness.recording()) as (gateway, listing):
        outcomes = await asyncio.gather(*(call(gateway, listing, "meet", others=2) for _ in range(2)))
        waiting = asyncio.ensure_future(call(gateway, listing, "meet", others=2))
        await asyncio.wait([waiting], timeout=0.05)
        outcomes += [await call(gateway, listing, "meet", others=2), await waiting]

    assert {outcome.text for outcome in outcomes} == {"met"}


async def test_server_over_http_that_answers_pings_keeps_its_session(
    harness: GatewayHarness, http_recording: ServerConfig
) -> None:
    async with harness.listing(http_recording) as (gateway, listing):
        pids = [(await call(gateway, listing, "pid")).text for _ in range(3)]
        sessions = gateway.open_sessions

    assert len(set(pids)) == 1
    assert sessions == 1
