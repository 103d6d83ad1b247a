"""Execution services as servers: what each of their answers and outages means for a call, and who sees their token."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import text as sql

from starling.core.clock import Deadline, SystemClock
from starling.core.ids import new_id
from starling.core.tool_calls import CallState, Effect, state_after_answer
from starling.core.tools import ToolCall, ToolOutcome
from tests.support.execution_service import EFFECTS, ExecutionService
from tests.support.gateway_harness import GatewayHarness, call, wait_for

TOKEN: Final = "token-of-the-execution-service"
UNUSABLE: Final = (
    "nonsense",
    "[]",
    "",
    '{"output": "fine"}',
    '{"status": ["success"], "output": "fine"}',
    '{"status": "success", "output": "\\ud800"}',
    '{"status": "success", "output": 1}{"status": "error", "output": 2}',
    f'{{"status": "success", "output": {"[" * 1_000}{"]" * 1_000}}}',
    '{"status": "odd"}',
    '{"output": NaN}',
)


@pytest.fixture
def service(harness: GatewayHarness, tmp_path: Path) -> ExecutionService:
    harness.environment["SERVICE_TOKEN"] = TOKEN
    return ExecutionService(tmp_path / "requests")


def state(outcome: ToolOutcome, effect: Effect) -> CallState:
    return state_after_answer(outcome.observation, effect)


async def test_tools_of_a_service_are_those_of_a_server_with_hints_that_set_no_effect(
    harness: GatewayHarness, service: ExecutionService
) -> None:
    with service.running():
        listing = await harness.listed(service.config(tools={}))

    tools = {tool.name: tool for tool in listing.tools}
    assert (listing.state, set(tools)) == ("ready", {"echo", "object", "fail", "hang", "status", "raw", "long"})
    assert {tool.effect for tool in tools.values()} == {Effect.UNSAFE}
    assert [tools[name].hinted for name in ("echo", "object", "fail")] == [Effect.READ, Effect.IDEMPOTENT, None]
    assert tools["object"].input_schema == tools["echo"].input_schema


async def test_outputs_are_results_and_status_error_is_the_error_of_the_tool(
    harness: GatewayHarness, service: ExecutionService
) -> None:
    with service.running():
        async with harness.listing(service.config(timeout=7)) as (gateway, listing):
            said = await call(gateway, listing, "echo", text="hello")
            given = await call(gateway, listing, "object", text="hello")
            failed = await call(gateway, listing, "fail", text="luck")

    assert (said.status, said.text) == ("succeeded", "hello")
    assert given.data == {"said": "hello"}
    assert (failed.observation, failed.text) == ("tool_error", "no luck for Bearer ***")
    assert json.loads(service.requests()[0]["body"]) == {
        "tool_name": "echo", "arguments": {"text": "hello"}, "timeout": 6.3,
    }  # fmt: skip


async def test_answers_that_are_no_results_end_their_call_alone(
    harness: GatewayHarness, service: ExecutionService
) -> None:
    refused = {("status", status): CallState.FAILED for status in (400, 401, 403, 404, 405, 413, 415, 422, 429)}
    doubtful = {("status", status): CallState.IN_DOUBT for status in (301, 302, 307, 409, 418, 500, 502, 503, 504)}
    waiting = {
        ("raw", text): CallState.IN_DOUBT
        for text in ('{"status": "waiting", "run_id": "r1"}', '{"status": "in_doubt"}')
    }
    unusable = {("raw", text): CallState.UNUSABLE for text in UNUSABLE}
    wanted = {**refused, **doubtful, **waiting, **unusable, ("long", ""): CallState.UNUSABLE}
    arguments = {"status": "status", "raw": "text"}
    got: dict[tuple[str, object], CallState] = {}
    with service.running():
        async with harness.listing(service.config()) as (gateway, listing):
            for tool, value in wanted:
                given: dict[str, Any] = {arguments[tool]: value} if tool in arguments else {}
                got[tool, value] = state(await call(gateway, listing, tool, **given), Effect.UNSAFE)
                assert (await call(gateway, listing, "echo", text="next")).status == "succeeded", value

    assert got == wanted
    assert [len(service.requests("/tools")), len(service.requests())] == [2, 2 * len(wanted)]  # one session, none twice


async def test_service_killed_in_mid_call_leaves_an_unsafe_call_in_doubt_and_later_ones_unsent_until_it_is_back(
    harness: GatewayHarness, service: ExecutionService
) -> None:
    async with harness.gateway() as gateway:
        with service.running() as process:
            (listing,) = await gateway.catalog.sync({"a": service.config()})
            waiting = asyncio.ensure_future(call(gateway, listing, "hang"))
            await wait_for(lambda: len(service.requests()) == 1)
            process.kill()
            lost = await waiting
        gone = await call(gateway, listing, "hang")
        with service.running():
            back = await call(gateway, listing, "echo", text="back")

    assert (lost.observation, state(lost, Effect.UNSAFE)) == ("connection_lost", CallState.IN_DOUBT)
    assert "Whether it changed anything is unknown." in lost.text
    assert (gone.observation, gone.code) == ("not_sent", "server_unavailable")
    assert back.status == "succeeded"
    assert len(service.requests()) == 2


async def test_call_beyond_its_time_limit_is_in_doubt_and_others_go_on(
    harness: GatewayHarness, service: ExecutionService
) -> None:
    options: Any = {"tools": {**EFFECTS, "hang": {"timeout": 0.3}}}
    with service.running():
        async with harness.listing(service.config(**options)) as (gateway, listing):
            late = await call(gateway, listing, "hang")
            after = await call(gateway, listing, "echo", text="next")

    assert state(late, Effect.UNSAFE) is CallState.IN_DOUBT
    assert after.status == "succeeded"


async def test_key_of_a_call_that_changes_something_and_the_token_are_headers(
    harness: GatewayHarness, service: ExecutionService
) -> None:
    with service.running():
        async with harness.listing(service.config()) as (gateway, listing):
            tools = {tool.name: tool for tool in listing.tools}
            for name in ("echo", "object"):
                made = ToolCall(new_id(), "run", "t1", tools[name], {}, idempotency_key=f"key-{name}")
                await gateway.call(made, Deadline(SystemClock(), 20))

    headers = [request["headers"] for request in service.requests()]
    assert [one.get("idempotency-key") for one in headers] == [None, "key-object"]
    assert {one["authorization"] for one in (*headers, service.requests("/tools")[0]["headers"])} == {f"Bearer {TOKEN}"}


async def test_token_is_in_no_row_log_or_error(
    harness: GatewayHarness, service: ExecutionService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with service.running():
        async with harness.listing(service.config()) as (gateway, listing):
            outcomes = [
                await call(gateway, listing, "fail", text="luck"),
                await call(gateway, listing, "status", status=500, text="wrong token"),
                await call(gateway, listing, "raw", text='{"status": "error", "output": "it is TOKEN"}'),
            ]
    async with harness.engine.connect() as connection:
        rows = (await connection.execute(sql("SELECT to_jsonb(s)::text FROM servers s"))).scalars().all()

    assert all("***" in outcome.text for outcome in outcomes)
    assert [row.count("${SERVICE_TOKEN}") for row in rows] == [1]
    assert TOKEN not in f"{rows}{caplog.text}{[outcome.text for outcome in outcomes]}"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/nowhere", "it refused to list its tools: it answered with HTTP 404: there is nothing."),
        ("/closed", "it refused to list its tools: it answered with HTTP 401: who are you."),
        ("/odd", "its list of tools is unreadable: it is not a list of tools: 0.name: must be a text."),
    ],
)
async def test_service_that_lists_no_tools_is_degraded(
    harness: GatewayHarness, service: ExecutionService, path: str, reason: str
) -> None:
    with service.running():
        listing = await harness.listed(service.config(path))

    assert (listing.state, listing.error) == ("degraded", reason)


async def test_service_that_is_not_there_is_degraded(harness: GatewayHarness, service: ExecutionService) -> None:
    listing = await harness.listed(service.config())

    assert listing.state == "degraded"
    assert "it can't be reached" in listing.error
