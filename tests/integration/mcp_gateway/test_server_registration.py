"""Adding, removing and trying out one server at a time."""

import asyncio

import pytest

from mcp_gateway.configuration.servers import server_of
from starling.core.errors import ConfigurationError, NotFoundError, ServerUnavailableError
from starling.core.tool_calls import Effect
from tests.support.gateway_harness import GatewayHarness


async def test_added_server_stays_when_a_file_is_loaded(harness: GatewayHarness) -> None:
    async with harness.gateway() as gateway:
        await gateway.catalog.add("recorder", harness.recording())
        listings = await gateway.catalog.sync({})

    assert [(listing.name, listing.state) for listing in listings] == [("recorder", "ready")]


async def test_adding_an_existing_name_is_refused(harness: GatewayHarness) -> None:
    async with harness.gateway() as gateway:
        await gateway.catalog.add("recorder", harness.recording())

        with pytest.raises(ConfigurationError, match="'recorder' already"):
            await gateway.catalog.add("recorder", harness.recording())


async def test_second_of_two_concurrent_additions_of_a_name_is_refused(harness: GatewayHarness) -> None:
    async with harness.gateway() as gateway, harness.gateway() as other:
        come_to = await asyncio.gather(
            gateway.catalog.add("recorder", harness.recording(description="One.")),
            other.catalog.add("recorder", harness.recording(description="Two.")),
            return_exceptions=True,
        )
        (stored,) = await gateway.refresh()

    (refused,) = (found for found in come_to if isinstance(found, BaseException))
    ((added,),) = (found for found in come_to if not isinstance(found, BaseException))
    assert isinstance(refused, ConfigurationError)
    assert added == stored


async def test_server_that_cannot_be_listed_is_not_added(harness: GatewayHarness) -> None:
    async with harness.gateway() as gateway:
        with pytest.raises(ServerUnavailableError):
            await gateway.catalog.add("nothing", server_of({"command": "no-such-command"}))

        assert await gateway.refresh() == ()


async def test_removed_server_is_unknown(harness: GatewayHarness) -> None:
    async with harness.gateway() as gateway:
        await gateway.catalog.add("recorder", harness.recording())
        assert await gateway.catalog.remove("recorder") == ()

        assert gateway.listing("recorder") is None
        with pytest.raises(NotFoundError, match="Known are: none"):
            await gateway.catalog.remove("recorder")


async def test_reconfigured_server_keeps_its_tools_and_has_the_new_effects(harness: GatewayHarness) -> None:
    async with harness.gateway() as gateway:
        (before,) = await gateway.catalog.add("recorder", harness.recording())
        (after,) = await gateway.catalog.reconfigure("recorder", harness.recording(tools={"pid": {"effect": "read"}}))

    effects = {tool.name: tool.effect for tool in after.tools}
    assert [tool.hash for tool in after.tools] == [tool.hash for tool in before.tools]
    assert (effects["pid"], effects["record"]) == (Effect.READ, Effect.UNSAFE)


async def test_reconfiguring_a_server_of_a_file_is_refused(harness: GatewayHarness) -> None:
    async with harness.gateway() as gateway:
        await gateway.catalog.sync({"recorder": harness.recording()})

        with pytest.raises(ConfigurationError, match="comes from a file"):
            await gateway.catalog.reconfigure("recorder", harness.recording(effect="read"))


async def test_probing_a_server_returns_its_listing_and_changes_nothing(harness: GatewayHarness) -> None:
    async with harness.gateway() as gateway:
        (before,) = await gateway.catalog.add("recorder", harness.recording())
        trial = await gateway.catalog.try_out("recorder")
        (after,) = await gateway.refresh()

    assert trial.tools == tuple(tool.name for tool in before.tools)
    assert (trial.new, trial.gone, trial.changed, trial.left_out) == ((), (), (), ())
    assert before == after
