"""Calls that nobody waits for any more: the session that they were made on goes on."""

import asyncio
import random

import pytest

from mcp_gateway.config import ServerConfig
from starling.core.tools import NoHalts, ToolCall
from tests.support.gateway import House, call, listed

CALLS = 150


class Switch(NoHalts):
    """Switches everything off."""

    off = False

    def reason(self, call: ToolCall) -> str:
        return f"The server {call.tool.server} is switched off: Smoke." if self.off else ""


@pytest.mark.parametrize("over", ["stdio", "http"])
async def test_calls_that_are_cut_off_just_as_they_are_answered_end_no_session(
    house: House, http_recording: ServerConfig, over: str
) -> None:
    dice = random.Random(7)
    async with house.gateway() as gateway:
        server = await listed(gateway, http_recording if over == "http" else house.recording())
        clock = asyncio.get_running_loop().time
        before = await call(gateway, server, "pid")
        begun = clock()
        await call(gateway, server, "record", text="one")
        seconds = 1.5 * (clock() - begun)
        sessions = house.recorded().count("started")

        for number in range(CALLS):
            going = asyncio.get_running_loop().create_task(call(gateway, server, "record", text=str(number)))
            staying = asyncio.get_running_loop().create_task(call(gateway, server, "record", text=f"stays {number}"))
            await asyncio.sleep(dice.uniform(0, seconds))
            going.cancel()
            assert (await staying).status == "succeeded"
        after = await call(gateway, server, "pid")

    assert (before.text, house.recorded().count("started")) == (after.text, sessions)


async def test_what_is_switched_off_while_its_server_starts_is_not_called(house: House) -> None:
    switch = Switch()
    async with house.gateway(switch) as gateway:
        house.record.touch()
        server = await listed(gateway, house.misbehaving("late", effect="unsafe"))
        house.record.unlink()  # the next one starts late
        going = asyncio.get_running_loop().create_task(call(gateway, server, server.tools[0].name))
        while gateway.open_sessions == 0:  # noqa: ASYNC110 - the call is another task
            await asyncio.sleep(0.01)

        switch.off = True
        house.record.touch()
        outcome = await going

    assert (outcome.status, outcome.code, outcome.unknown) == ("failed", "switched_off", False)
    assert "Smoke." in outcome.text
