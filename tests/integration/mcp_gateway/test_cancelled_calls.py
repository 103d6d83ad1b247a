"""Calls that nobody waits for any more: the session that they were made on goes on."""

import asyncio
import random

import pytest

from mcp_gateway.configuration.servers import ServerConfig
from starling.core.tools import ToolCall
from tests.support.absent_services import NoHalts
from tests.support.gateway_harness import GatewayHarness, call, listed
from tests.support.soak import rounds


class Switch(NoHalts):
    """Switches everything off."""

    off = False

    def reason(self, call: ToolCall) -> str:
        return f"The server {call.tool.server} is switched off: Smoke." if self.off else ""


@rounds(20, soak=150)
@pytest.mark.parametrize("over", ["stdio", "http"])
async def test_calls_cancelled_during_their_response_do_not_end_the_session(
    harness: GatewayHarness, request: pytest.FixtureRequest, over: str, rounds: int
) -> None:
    dice = random.Random(7)
    async with harness.gateway() as gateway:
        config: ServerConfig = request.getfixturevalue("http_recording") if over == "http" else harness.recording()
        server = await listed(gateway, config)
        clock = asyncio.get_running_loop().time
        before = await call(gateway, server, "pid")
        begun = clock()
        await call(gateway, server, "record", text="one")
        seconds = 1.5 * (clock() - begun)
        sessions = harness.recorded().count("started")

        for number in range(rounds):
            going = asyncio.get_running_loop().create_task(call(gateway, server, "record", text=str(number)))
            staying = asyncio.get_running_loop().create_task(call(gateway, server, "record", text=f"stays {number}"))
            await asyncio.sleep(dice.uniform(0, seconds))
            going.cancel()
            assert (await staying).status == "succeeded"
        after = await call(gateway, server, "pid")

    assert (before.text, harness.recorded().count("started")) == (after.text, sessions)


async def test_tool_switched_off_while_its_server_starts_is_not_called(harness: GatewayHarness) -> None:
    switch = Switch()
    async with harness.gateway(switch) as gateway:
        harness.record.touch()
        server = await listed(gateway, harness.misbehaving("late", effect="unsafe"))
        harness.record.unlink()  # the next one starts late
        going = asyncio.get_running_loop().create_task(call(gateway, server, server.tools[0].name))
        while gateway.open_sessions == 0:  # noqa: ASYNC110 - the call is another task
            await asyncio.sleep(0.01)

        switch.off = True
        harness.record.touch()
        outcome = await going

    assert (outcome.status, outcome.code, outcome.observation) == ("failed", "switched_off", "not_sent")
    assert "Smoke." in outcome.text
