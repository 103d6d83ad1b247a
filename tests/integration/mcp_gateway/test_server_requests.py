"""What servers ask for and say during a call, with a real one."""

import pytest

from mcp_gateway.configuration.servers import ServerConfig, server_of
from starling.core.clock import Deadline, SystemClock
from starling.core.ids import new_id
from starling.core.tools import ToolCall, ToolNotice
from tests.support.gateway_harness import TOOLS, GatewayHarness, call, listed


def everything(**options: object) -> ServerConfig:
    script = TOOLS / "node/node_modules/.bin/mcp-server-everything"
    if not script.exists():
        pytest.skip(f"no {script}: run scripts/node-servers")
    return server_of({"command": str(TOOLS.parent / "bin/node"), "args": [str(script)], "x-starling": options})


async def test_progress_of_a_server_reaches_its_caller(harness: GatewayHarness) -> None:
    heard: list[ToolNotice] = []
    async with harness.listing(everything(effect="read")) as (gateway, listing):
        tool = next(tool for tool in listing.tools if tool.name == "trigger-long-running-operation")
        arguments = {"duration": 0.2, "steps": 2}
        made = ToolCall(new_id(), "run", "t1", tool, arguments, on_notice=heard.append)
        outcome = await gateway.call(made, Deadline(SystemClock(), 30))

    assert outcome.status == "succeeded"
    assert [(notice.progress, notice.total) for notice in heard] == [(1, 2), (2, 2)]


async def test_server_is_told_only_configured_roots(harness: GatewayHarness) -> None:
    async with harness.gateway() as gateway:
        without = await listed(gateway, everything(effect="read"))
        offered = {tool.name for tool in without.tools}
        listing = await listed(gateway, everything(effect="read", roots=["file:///srv/data"]), "b")
        told = await call(gateway, listing, "get-roots-list")

    assert "file:///srv/data" in told.text
    assert not {"get-roots-list", "trigger-sampling-request", "trigger-elicitation-request"} & offered
