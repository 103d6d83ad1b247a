"""What a call comes to: always an outcome that an agent can read and correct."""

import asyncio
import json
from typing import Any

import pytest
from sqlalchemy import update

from mcp_gateway.configuration.servers import ServerConfig
from starling.core.clock import Deadline, SystemClock
from starling.core.tool_calls import Observation
from starling.core.tools import ToolCall
from starling.infra.postgres.tables.registry import servers
from tests.support.gateway_harness import GatewayHarness, call, foreign, listed, module, named, wait_for


async def test_call_returns_text_and_structured_data(harness: GatewayHarness) -> None:
    async with harness.listing(harness.recording()) as (gateway, listing):
        outcome = await call(gateway, listing, "add", first=2, second=3)

    assert (outcome.status, outcome.code, outcome.truncated) == ("succeeded", "", False)
    assert outcome.data == {"sum": 5}
    assert json.loads(outcome.text) == {"sum": 5}
    assert outcome.duration_ms > 0


async def test_concurrent_calls_over_http_succeed(harness: GatewayHarness, http_recording: ServerConfig) -> None:
    async with harness.listing(http_recording) as (gateway, listing):
        outcomes = await asyncio.gather(*(call(gateway, listing, "meet", others=3) for _ in range(3)))

    assert [(outcome.status, outcome.text) for outcome in outcomes] == [("succeeded", "met")] * 3


async def test_call_with_invalid_arguments_is_not_sent(harness: GatewayHarness) -> None:
    async with harness.listing(harness.recording()) as (gateway, listing):
        outcome = await call(gateway, listing, "record", words="x")

    assert (outcome.status, outcome.code) == ("failed", "invalid_arguments")
    assert "'text' is a required property (text: string)" in outcome.text
    assert "The tool was not called." in outcome.text
    assert harness.recorded() == ["started"]


@pytest.mark.parametrize(
    ("how", "code", "observation", "text"),
    [
        ("failing", "tool_error", "tool_error", "the disk is on fire"),
        ("refusing", "tool_error", "internal_error", "a answered the call with error -32603: not today"),
        ("breaking-promise", "invalid_result", "invalid_result", "result.n: 'four' is not of type 'integer'"),
        ("no-result", "invalid_result", "invalid_result", "is not an MCP result"),
        ("dying", "server_unavailable", "connection_lost", "exit code 7; its last line on stderr: out of luck"),
    ],
)
async def test_failed_call_returns_code_observation_and_reason(
    harness: GatewayHarness, how: str, code: str, observation: str, text: str
) -> None:
    async with harness.listing(harness.misbehaving(how)) as (gateway, listing):
        outcome = await call(gateway, listing, "act")

    assert (outcome.status, outcome.code, outcome.observation) == ("failed", code, observation)
    assert text in outcome.text


async def test_content_parts_other_than_text_are_shown_by_kind_and_size(harness: GatewayHarness) -> None:
    async with harness.listing(harness.misbehaving("contents")) as (gateway, listing):
        outcome = await call(gateway, listing, "act")

    assert outcome.text.splitlines() == [
        "look:",
        "[image, application/octet-stream, declared as image/png, 300 bytes, not kept: no run would read it]",
        "[audio, audio/wav, 3 bytes, not kept: no run would read it]",
        "[resource file:///a.txt, unknown type: a.txt]",
        "inside",
        "[resource file:///c.bin, x/y, 3 bytes, not kept: no run would read it]",
    ]


async def test_linked_resource_is_read_by_its_own_server_whatever_its_address(harness: GatewayHarness) -> None:
    async with harness.listing(harness.misbehaving("contents")) as (gateway, listing):
        outcome = await call(gateway, listing, "act")
        (uri,) = outcome.resources
        read = ToolCall("c", "run", "t1", listing.tools[0].reading(), {"uri": uri}, resource=uri)
        found = await gateway.call(read, Deadline(SystemClock(), 20))

    assert (uri, found.text) == ("file:///a.txt", "its own words")
    assert "read file:///a.txt" in harness.recorded()


@pytest.mark.parametrize(
    ("limits", "options", "seconds"),
    [
        ({"tool_call_seconds": 1}, {}, 20.0),
        ({}, {"timeout": 1}, 20.0),
        ({}, {}, 1),
    ],
)
async def test_call_of_a_tool_that_does_not_answer_times_out_and_is_cancelled(
    harness: GatewayHarness, limits: dict[str, Any], options: dict[str, Any], seconds: float
) -> None:
    async with harness.listing(harness.misbehaving("hanging", **options), **limits) as (gateway, listing):
        gateway.warm("a")
        await wait_for(lambda: harness.recorded().count("notifications/initialized") == 2)
        outcome = await call(gateway, listing, "act", seconds=seconds)
        await wait_for(lambda: "notifications/cancelled" in harness.recorded())

    assert (outcome.status, outcome.code) == ("failed", "timeout")
    assert "didn't answer within" in outcome.text
    assert "Whether it changed anything is unknown." in outcome.text
    assert outcome.observation is Observation.TIMED_OUT


async def test_call_without_time_left_is_not_made(harness: GatewayHarness) -> None:
    async with harness.listing(harness.recording()) as (gateway, listing):
        outcome = await call(gateway, listing, "pid", seconds=0)

    assert (outcome.code, harness.recorded()) == ("timeout", ["started"])
    assert "The tool was not called." in outcome.text


async def test_tool_changed_since_it_was_pinned_is_not_called(harness: GatewayHarness) -> None:
    async with harness.gateway() as gateway:
        granted = await listed(gateway, harness.misbehaving("promising"))
        await listed(gateway, harness.misbehaving("well", pins="follow"))
        outcome = await call(gateway, granted, "act")

    assert outcome.code == "removed"
    assert "was changed by its server" in outcome.text


async def test_removed_tool_is_not_called(harness: GatewayHarness) -> None:
    async with harness.gateway() as gateway:
        granted = await listed(gateway, harness.recording())
        async with harness.engine.begin() as connection:
            await connection.execute(update(servers).values(tools={}))
        await gateway.refresh()
        outcome = await call(gateway, granted, "pid")

    assert outcome.code == "removed"
    assert "a.pid was removed" in outcome.text


async def test_server_that_no_longer_starts_is_unavailable(harness: GatewayHarness) -> None:
    harness.environment["SCRIPT"] = "well"
    listing = await harness.listed(harness.misbehaving("${SCRIPT}"))
    del harness.environment["SCRIPT"]
    async with harness.gateway() as gateway:
        outcome = await call(gateway, listing, "act")

    assert outcome.code == "server_unavailable"
    assert "SCRIPT is not set" in outcome.text


async def test_third_party_server_answers_calls(harness: GatewayHarness) -> None:
    async with harness.gateway() as gateway:
        listing = named(await gateway.catalog.sync({"time": foreign("time")}), "time")
        good = await call(gateway, listing, "get_current_time", timezone="America/Lima")
        bad = await call(gateway, listing, "get_current_time", timezone="Atlantis")

    assert good.status == "succeeded"
    assert json.loads(good.text)["timezone"] == "America/Lima"
    assert bad.code == "tool_error"


async def test_system_health_returns_measurements_of_the_machine(harness: GatewayHarness) -> None:
    async with harness.listing(module("mcp_gateway.servers.system_health", effect="read")) as (gateway, listing):
        cpu, memory, disk, load, processes, nowhere = await asyncio.gather(
            call(gateway, listing, "cpu"),
            call(gateway, listing, "memory"),
            call(gateway, listing, "disk"),
            call(gateway, listing, "load"),
            call(gateway, listing, "processes", limit=3, sort_by="memory"),
            call(gateway, listing, "disk", path="/no/such"),
        )

    numbers: list[dict[str, Any]] = [dict(outcome.data or {}) for outcome in (cpu, memory, disk, load, processes)]
    assert 0 <= numbers[0]["percent"] <= 100
    assert 0 < numbers[1]["used_bytes"] <= numbers[1]["total_bytes"]
    assert (numbers[2]["path"], 0 <= numbers[2]["percent"] <= 100) == ("/", True)
    assert numbers[3]["one_minute"] >= 0
    used: list[int] = [process["memory_bytes"] for process in numbers[4]["processes"]]
    assert (len(used), used) == (3, sorted(used, reverse=True))
    assert (nowhere.code, "'/no/such' can't be read" in nowhere.text) == ("tool_error", True)
