"""What an execution service may list and answer, and what comes of it: always a state or an outcome with a reason."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from mcp_gateway.configuration.servers import ServerConfig, parse_config, server_of
from starling.core.errors import ConfigurationError
from tests.support.gateway_harness import GatewayHarness, call, listed
from tests.support.lying_service import SCHEMA, TOOLS, LyingService, Reply

TOKEN = "token-of-the-lying-service"
ACT, LOOK = TOOLS


@pytest.fixture
async def service() -> AsyncGenerator[LyingService]:
    async with LyingService().serving() as service:
        yield service


def config(service: LyingService, path: str = "", **options: Any) -> ServerConfig:
    headers = {"Authorization": "Bearer ${SERVICE_TOKEN}"}
    options = {"tools": {"look": {"effect": "read"}}} | options
    document = {"type": "execution_service", "url": service.url + path, "headers": headers, "x-starling": options}
    return server_of(document)


@pytest.fixture
def harness(harness: GatewayHarness) -> GatewayHarness:
    harness.environment["SERVICE_TOKEN"] = TOKEN
    return harness


def tool(name: Any, **fields: Any) -> dict[str, Any]:
    return {"name": name, "description": "It acts.", "input_schema": SCHEMA} | fields


@pytest.mark.parametrize(
    "document",
    [
        TOOLS,
        {"tools": TOOLS},
        {"tools": TOOLS, "epoch": 7},
        {"tools": [{"name": each["name"], "description": "x", "parameters": SCHEMA} for each in TOOLS]},
        {"tools": [each | {"effect": "read", "more": [1]} for each in TOOLS]},
    ],
)
async def test_every_form_of_a_list_is_read_and_its_effect_only_proposed(
    harness: GatewayHarness, service: LyingService, document: Any
) -> None:
    service.tools = Reply.of(document)

    listing = await harness.listed(config(service, "/base/"))

    assert (listing.state, {each.name: each.effect for each in listing.tools}) == (
        "ready",
        {"act": "unsafe", "look": "read"},
    )
    assert {(request.path, request.headers["Authorization"]) for request in service.requests} == {
        ("/base/tools", f"Bearer {TOKEN}")
    }


@pytest.mark.parametrize(
    "reply",
    [
        Reply(b"<html>Sign in</html>", headers={"content-type": "text/html"}),
        Reply(b""),
        Reply(b"{"),
        Reply(b"\xff\xfe\x00"),
        Reply(b'{"tools": [{"name": "act", "input_schema": {"x": NaN}}]}'),
        Reply.of(5),
        Reply.of(None),
        Reply.of("act"),
        Reply.of({}),
        Reply.of({"tools": None}),
        Reply.of({"tools": {"act": ACT}}),
        Reply.of({"tools": ["act"]}),
        Reply.of({"tools": [tool(3)]}),
        Reply.of({"error": "no"}),
        Reply.of({"tools": TOOLS}, 500),
        Reply.of({"tools": TOOLS}, 401),
        Reply.of({"tools": TOOLS}, 404),
        Reply(b"", 204),
        Reply(b"[" * 100_000),
        Reply(b'{"tools": [' + b"5" * 5_000 + b"]}"),
        Reply(b" " * (17 * 2**20)),
        Reply(cut=True),
        Reply(b'{"tools": ', cut=True),
        Reply(hang=True),
        Reply(b"x", headers={"content-encoding": "gzip"}),
    ],
    ids=range(25),
)  # fmt: skip
async def test_list_that_cannot_be_used_degrades_the_server_with_a_reason(
    harness: GatewayHarness, service: LyingService, reply: Reply
) -> None:
    service.tools = reply

    async with asyncio.timeout(30):
        listing = await harness.listed(config(service), server_start_seconds=1)

    assert (listing.state, listing.tools) == ("degraded", ())
    assert listing.error
    assert TOKEN not in listing.error


async def test_redirects_are_not_followed_and_carry_no_token(harness: GatewayHarness, service: LyingService) -> None:
    async with LyingService().serving() as other:
        service.tools = Reply.of({}, 307, location=f"{other.url}/tools")
        listing = await harness.listed(config(service))
        service.tools = Reply.of(TOOLS)
        service.replies["x"] = Reply.of({}, 308, location=f"{other.url}/execute")
        async with harness.listing(config(service)) as (gateway, found):
            outcome = await call(gateway, found, "act", how="x")

    assert (listing.state, outcome.status, other.requests) == ("degraded", "failed", [])


@pytest.mark.parametrize(
    ("odd", "kept"),
    [
        ([tool("act"), tool("act", description="Another.")], {"fine"}),
        ([tool("act"), tool("act")], {"fine"}),
        ([tool("Act"), tool("act")], {"fine", "Act"}),
        ([tool("p1n"), tool("pln")], {"fine"}),
        ([tool("rm -rf; x")], {"fine"}),
        ([tool("")], {"fine"}),
        ([tool("a" * 200)], {"fine"}),
        ([tool("find_tools"), tool("transfer_to_boss")], {"fine"}),
        ([tool("\u0430ct")], {"fine"}),
        ([tool("act", input_schema={"type": "nonsense"})], {"fine"}),
        ([tool("act", input_schema={"type": "object", "$ref": "#/$defs/none"})], {"fine", "act"}),
        ([tool("act", input_schema={"type": "object", "properties": 5})], {"fine"}),
        ([tool("act", input_schema={"description": "x" * 200_000, "type": "object"})], {"fine"}),
        ([tool("act", description="hid\u200bden")], {"fine"}),
    ],
    ids=range(14),
)  # fmt: skip
async def test_tool_that_cannot_be_used_is_left_out_and_the_others_stay(
    harness: GatewayHarness, service: LyingService, odd: list[dict[str, Any]], kept: set[str]
) -> None:
    service.tools = Reply.of({"tools": [*odd, tool("fine")]})

    listing = await harness.listed(config(service, tools={}))

    assert listing.state == "ready"
    assert "fine" in {each.name for each in listing.tools}
    assert {each.name for each in listing.tools} <= kept | ({"p1n", "pln"} & {each["name"] for each in odd})


@pytest.mark.parametrize(
    "fields", [{"description": None}, {"input_schema": None}, {"input_schema": {}}, {"effect": "harmless"}]
)
async def test_fields_that_are_missing_do_not_spoil_the_list(
    harness: GatewayHarness, service: LyingService, fields: dict[str, Any]
) -> None:
    odd = {name: value for name, value in tool("act", **fields).items() if value is not None}
    service.tools = Reply.of([odd, tool("fine")])

    listing = await harness.listed(config(service, tools={}))

    assert (listing.state, {each.name for each in listing.tools}) == ("ready", {"act", "fine"})


async def test_empty_list_is_a_server_without_tools(harness: GatewayHarness, service: LyingService) -> None:
    service.tools = Reply.of([])

    listing = await harness.listed(config(service, tools={}))

    assert listing.tools == ()


@pytest.mark.parametrize("output", ["text", {"a": [1, None]}, [1, "b"], 5, 1.5, True, None, "\x00a"])
async def test_any_json_may_be_the_output(harness: GatewayHarness, service: LyingService, output: Any) -> None:
    service.replies["x"] = Reply.of({"status": "success", "output": output})

    async with harness.listing(config(service)) as (gateway, listing):
        outcome = await call(gateway, listing, "act", how="x")

    assert outcome.status == "succeeded", outcome.text
    assert outcome.data == output if isinstance(output, dict) else True
    if isinstance(output, str):
        assert outcome.text.replace("\ufffd", "\x00") == output
    elif output is not None:
        assert json.loads(outcome.text) == output


async def test_token_that_a_service_repeats_is_masked(harness: GatewayHarness, service: LyingService) -> None:
    said = {
        "success": Reply.of({"status": "success", "output": f"you are {TOKEN}"}),
        "object": Reply.of({"status": "success", "output": {"you": TOKEN}}),
        "error": Reply.of({"status": "error", "output": f"bad {TOKEN}"}),
        "refusal": Reply.of({"detail": f"unknown {TOKEN}"}, 401),
        "junk": Reply(f"who is {TOKEN}?".encode()),
        "status": Reply.of({"status": TOKEN, "output": TOKEN}),
    }
    service.replies |= said

    async with harness.listing(config(service)) as (gateway, listing):
        outcomes = [await call(gateway, listing, "act", how=how) for how in said]

    assert [how for how, outcome in zip(said, outcomes, strict=True) if TOKEN in repr(outcome)] == []
    assert "you are ***" in outcomes[0].text


async def test_service_that_was_away_at_first_is_listed_by_the_next_reload(harness: GatewayHarness) -> None:
    late = LyingService()
    async with harness.gateway() as gateway:
        before = await listed(gateway, config(late))
        async with late.serving():
            after = await listed(gateway, config(late))

    assert (before.state, after.state) == ("degraded", "ready")


async def test_address_of_another_protocol_degrades_the_server(harness: GatewayHarness, service: LyingService) -> None:
    address = service.url.replace("http:", "ftp:")

    listing = await harness.listed(server_of({"type": "execution_service", "url": address}))

    assert (listing.state, bool(listing.error), service.requests) == ("degraded", True, [])


@pytest.mark.parametrize(
    "changes",
    [
        {"url": "http://127.0.0.1:1?x=1"},
        {"url": "http://127.0.0.1:1#x"},
        {"url": ""},
    ],
)
def test_configuration_that_cannot_work_is_refused(changes: dict[str, Any]) -> None:
    server = {"type": "execution_service", "url": "http://127.0.0.1:1"} | changes
    with pytest.raises(ConfigurationError):
        parse_config(json.dumps({"mcpServers": {"a": server}}), "x")
