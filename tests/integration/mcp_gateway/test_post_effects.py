"""What follows a call: its server is listed again."""

from tests.support.gateway_harness import GatewayHarness, call, listed, wait_for


async def test_server_is_listed_again_after_a_call_that_says_so(harness: GatewayHarness) -> None:
    harness.record.write_text("Does it.")
    async with harness.gateway() as gateway:
        listing = await listed(
            gateway, harness.misbehaving("changing", pins="text", tools={"act": {"post_effects": ["relist"]}})
        )
        harness.record.write_text("Does it, says the new version.")

        await call(gateway, listing, "act")

        def hashes() -> list[str]:
            now = gateway.listing("a")
            return [tool.hash for tool in now.tools] if now else []

        await wait_for(lambda: hashes() != [tool.hash for tool in listing.tools])
