"""Sessions open on first use, are shared, stay, close when idle and are replaced after a death."""

import asyncio
import gc
from contextlib import suppress

import psutil
import pytest

from mcp_gateway.configuration.servers import server_of
from starling.core.clock import Deadline, SystemClock
from starling.core.ids import new_id
from starling.core.tool_calls import Observation
from starling.core.tools import ToolCall
from tests.support.gateway_harness import (
    SERVERS,
    GatewayHarness,
    call,
    free_port,
    listed,
    named,
    python,
    running_http,
    running_shims,
    wait_for,
)
from tests.support.soak import rounds


async def test_concurrent_calls_share_one_session(harness: GatewayHarness) -> None:
    async with harness.listing(harness.recording()) as (gateway, listing):
        outcomes = await asyncio.gather(*(call(gateway, listing, "meet", others=4) for _ in range(4)))

    assert [outcome.text for outcome in outcomes] == ["met"] * 4
    assert harness.recorded() == ["started"] * 2  # once to be listed, once for all calls


async def test_sessions_open_only_when_all_are_busy_and_up_to_the_limit(harness: GatewayHarness) -> None:
    async with harness.listing(harness.recording(max_sessions=3), sessions_per_server=2) as (gateway, listing):
        for _ in range(3):
            await call(gateway, listing, "pid")
        after_calls_in_turn = len(harness.recorded())
        pids = await asyncio.gather(*(call(gateway, listing, "pid") for _ in range(8)))

    assert after_calls_in_turn == 2
    assert len({outcome.text for outcome in pids}) == 2


async def test_listed_server_is_stopped_until_its_next_use(harness: GatewayHarness) -> None:
    async with harness.gateway() as gateway:
        await listed(gateway, harness.recording())
        await wait_for(lambda: not running_shims())

        gateway.warm("a")
        await wait_for(lambda: len(harness.recorded()) == 2)


async def test_idle_session_closes_and_the_next_call_opens_a_new_one(harness: GatewayHarness) -> None:
    async with harness.listing(harness.recording(), session_idle_seconds=0.2) as (gateway, listing):
        first = await call(gateway, listing, "pid")
        await wait_for(lambda: not psutil.pid_exists(int(first.text)))
        second = await call(gateway, listing, "pid")

    assert second.status == "succeeded"
    assert first.text != second.text


async def test_server_that_exited_is_restarted_and_its_call_not_repeated(harness: GatewayHarness) -> None:
    async with harness.listing(harness.misbehaving("dying")) as (gateway, listing):
        first = await call(gateway, listing, "act")
        second = await call(gateway, listing, "act")

    assert [first.code, second.code] == ["server_unavailable"] * 2
    assert first.observation is Observation.CONNECTION_LOST
    assert harness.recorded() == ["called", "called"]


async def test_server_killed_while_idle_is_restarted(harness: GatewayHarness) -> None:
    async with harness.listing(harness.recording()) as (gateway, listing):
        first = await call(gateway, listing, "pid")
        psutil.Process(int(first.text)).kill()
        await wait_for(lambda: not gateway.open_sessions)
        second = await call(gateway, listing, "pid")

    assert second.status == "succeeded"
    assert first.text != second.text


async def test_all_waiting_callers_get_the_exit_code_of_a_server_that_died(harness: GatewayHarness) -> None:
    async with harness.listing(harness.recording()) as (gateway, listing):
        pid = int((await call(gateway, listing, "pid")).text)
        waiting = [asyncio.ensure_future(call(gateway, listing, "meet", others=99)) for _ in range(3)]
        await call(gateway, listing, "meet", others=4)  # the others have arrived
        psutil.Process(pid).kill()
        outcomes = await asyncio.gather(*waiting)

    assert {outcome.code for outcome in outcomes} == {"server_unavailable"}
    assert "exit code 137" in outcomes[0].text


async def test_stopped_http_server_is_unavailable_until_it_runs_again(harness: GatewayHarness) -> None:
    port = free_port()
    async with harness.gateway() as gateway:
        with running_http(harness.record, port) as config:
            listing = await listed(gateway, config)
            before = await call(gateway, listing, "pid")
        gone = await call(gateway, listing, "pid")
        with running_http(harness.record, port):
            after = await call(gateway, listing, "pid")

    assert [outcome.status for outcome in (before, gone, after)] == ["succeeded", "failed", "succeeded"]
    assert gone.code == "server_unavailable"


async def test_http_server_whose_address_is_redirected_is_listed_and_called(harness: GatewayHarness) -> None:
    port = free_port()
    with running_http(harness.record, port):
        async with harness.listing(server_of({"url": f"http://127.0.0.1:{port}/mcp/"})) as (gateway, listing):
            outcome = await call(gateway, listing, "pid")

    assert (listing.state, outcome.status) == ("ready", "succeeded")


async def test_call_that_a_restarted_http_server_refused_is_made_in_a_new_session(harness: GatewayHarness) -> None:
    port = free_port()
    async with harness.gateway() as gateway:
        with running_http(harness.record, port) as config:
            listing = await listed(gateway, config)
            await call(gateway, listing, "pid")
        with running_http(harness.record, port):
            again = await call(gateway, listing, "record", text="once")

    assert again.status == "succeeded"
    assert harness.recorded().count("once") == 1


async def test_removed_server_is_stopped(harness: GatewayHarness) -> None:
    async with harness.listing(harness.recording()) as (gateway, listing):
        await call(gateway, listing, "pid")
        await gateway.catalog.sync({})
        await wait_for(lambda: not running_shims())


async def test_closing_the_gateway_ends_every_server_process_in_time(harness: GatewayHarness) -> None:
    async with harness.listing(harness.misbehaving("deaf")) as (gateway, listing):
        gateway.warm("a")
        outcome = await call(gateway, listing, "act")
        pids = [int(line) for line in harness.recorded()]

    assert outcome.status == "succeeded"
    assert len(pids) == 4  # the server and its daemon, when it was listed and when it was called
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


async def test_session_stays_usable_after_a_caller_is_cancelled(harness: GatewayHarness) -> None:
    async with harness.listing(harness.recording()) as (gateway, listing):
        pid = await call(gateway, listing, "pid")
        waiting = asyncio.ensure_future(call(gateway, listing, "meet", others=9))
        await asyncio.wait([waiting], timeout=0.1)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        after = await call(gateway, listing, "pid")

    assert after.text == pid.text


async def test_server_environment_holds_no_secret_of_the_platform(harness: GatewayHarness) -> None:
    harness.environment |= {"DATABASE_URL": "postgresql://u:p@h", "OPENAI_API_KEY": "sk-1", "TOKEN": "t"}
    async with harness.listing(harness.recording()) as (gateway, listing):
        seen = await call(gateway, listing, "environment")

    assert seen.data is not None
    assert not {"DATABASE_URL", "OPENAI_API_KEY", "TOKEN"} & seen.data.keys()


async def test_reported_stderr_line_of_a_server_is_shown_without_secrets(harness: GatewayHarness) -> None:
    harness.environment["TOKEN"] = "such database: prod"
    listing = await harness.listed(python(SERVERS / "misbehaving.py", "crashing", env={"TOKEN": "${TOKEN}"}))

    assert "its last line on stderr: no ***" in listing.error


async def test_a_failed_warm_up_logs_nothing(harness: GatewayHarness, caplog: pytest.LogCaptureFixture) -> None:
    async with harness.gateway() as gateway:
        await listed(gateway, harness.misbehaving("crashing"))
        caplog.clear()
        gateway.warm("a")
        gateway.warm("nobody")

    assert not caplog.records


async def test_an_error_in_the_gateway_block_is_raised_unchanged(harness: GatewayHarness) -> None:
    async def fail() -> None:
        async with harness.gateway() as gateway:
            await listed(gateway, harness.misbehaving("well"))
            gateway.warm("a")
            raise LookupError

    with pytest.raises(LookupError):
        await fail()

    assert not running_shims()


async def test_server_that_fails_to_start_again_and_again_is_started_less_and_less(harness: GatewayHarness) -> None:
    async with harness.listing(harness.misbehaving("crashing-later")) as (gateway, listing):
        outcomes = [await call(gateway, listing, "act") for _ in range(4)]

    assert [outcome.observation for outcome in outcomes] == [Observation.NOT_SENT] * 4
    assert "exit code 3" in outcomes[3].text
    assert "times in a row and is tried again in" in outcomes[3].text
    assert len(harness.recorded()) < 1 + 8  # each call makes two attempts


@pytest.mark.parametrize(
    ("how", "codes"),
    [
        ("dying", ["server_unavailable"] * 5),
        ("hanging", ["timeout"] * 4 + ["server_unavailable"]),
        ("failing", ["tool_error"] * 5),
        ("refusing", ["tool_error"] * 5),
    ],
)
async def test_calls_of_a_server_that_is_lost_or_silent_each_time_fail_at_once_those_with_errors_of_tools_do_not(
    harness: GatewayHarness, how: str, codes: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async with harness.listing(harness.misbehaving(how), tool_call_seconds=1 if how == "hanging" else 30) as (
        gateway,
        listing,
    ):
        await gateway.catalog.try_out("a")  # lists it: no failure, and no answer to a call either
        gateway.warm("a")  # its start takes nothing of the first call's time, where that is short
        await wait_for(lambda: how != "hanging" or harness.recorded().count("notifications/initialized") == 3)
        outcomes = [await call(gateway, listing, "act") for _ in range(5)]

    refused = "4 times in a row and is tried again in" in outcomes[4].text
    assert [outcome.code for outcome in outcomes] == codes
    assert refused is (how in ("dying", "hanging"))
    assert harness.recorded().count("called") in ((4,) if refused else (0,))
    said = [line for line in caplog.messages if "a fails again and again" in line]
    assert ["4 times in a row and is tried again in 1 s" in line for line in said] == [True] * refused


async def test_calls_of_a_run_leave_turns_to_another_run_of_the_same_server(harness: GatewayHarness) -> None:
    async with harness.listing(harness.recording(max_calls=1)) as (gateway, listing):
        tool = next(tool for tool in listing.tools if tool.name == "record")
        await call(gateway, listing, "record", text="before")  # a session is open, and schemas are compiled
        asked = [*(("first", str(number)) for number in range(4)), ("second", "of another run")]
        calls = [ToolCall(new_id(), run, "t1", tool, {"text": text}) for run, text in asked]
        await asyncio.gather(*(gateway.call(call, Deadline(SystemClock(), 20)) for call in calls))

    assert harness.recorded()[-6:] == ["before", "0", "1", "of another run", "2", "3"]


async def test_call_whose_turn_does_not_come_in_time_is_not_made_and_no_failure_of_its_server(
    harness: GatewayHarness,
) -> None:
    async with harness.listing(harness.misbehaving("hanging", max_calls=1, timeout=30)) as (gateway, listing):
        first = asyncio.create_task(call(gateway, listing, "act"))
        await wait_for(lambda: "called" in harness.recorded())
        others = await asyncio.gather(*(call(gateway, listing, "act", seconds=0.05) for _ in range(5)))
        first.cancel()

    assert {(other.observation, other.code) for other in others} == {(Observation.NOT_SENT, "timeout")}
    assert all("was busy with other calls for 0.0" in other.text for other in others)
    assert harness.recorded().count("called") == 1


async def test_session_that_was_idle_for_longest_makes_room_for_another_one(harness: GatewayHarness) -> None:
    async with harness.gateway(server_sessions=2) as gateway:
        listings = await gateway.catalog.sync({name: harness.recording() for name in "abc"})
        pids = [int((await call(gateway, named(listings, name), "pid")).text) for name in ("a", "b", "a", "c")]
        await wait_for(lambda: not psutil.pid_exists(pids[1]))

        assert [psutil.pid_exists(pid) for pid in pids] == [True, False, True, True]


@rounds(5, soak=200, name="reconnects")
@pytest.mark.timeout(1200)
async def test_reconnects_and_calls_leave_no_process_descriptor_or_memory(
    harness: GatewayHarness, reconnects: int
) -> None:
    async with harness.listing(harness.recording(effect="read")) as (gateway, listing):
        this = psutil.Process()
        before, memory = usage(this), 0
        for number in range(reconnects + 5):
            if number == 5:  # caches are filled
                gc.collect()
                before, memory = usage(this), this.memory_info().rss
            pids = [(await call(gateway, listing, "pid")).text for _ in range(5)]
            assert len(set(pids)) == 1
            psutil.Process(int(pids[0])).kill()
            await wait_for(lambda: not running_shims() and len(asyncio.all_tasks()) == 1)  # the session has ended, too
        gc.collect()
        after, grown = usage(this), this.memory_info().rss - memory

    assert all(now <= first + 1 for now, first in zip(after, before, strict=True)), (before, after)
    assert grown < 8 * 2**20


def usage(process: psutil.Process) -> tuple[int, int, int]:
    """Return the numbers of descriptors, child processes and tasks."""
    return process.num_fds(), len(process.children(recursive=True)), len(asyncio.all_tasks())
