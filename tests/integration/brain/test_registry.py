"""Epochs: numbered by content, published one at a time."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from brain.registry.repository import EpochRepository
from brain.registry.service import Registry
from mcp_gateway.config import server_of
from mcp_gateway.gateway import Gateway, open_gateway
from mcp_gateway.repository import ServerRepository
from starling.core.errors import NotFoundError
from starling.core.settings import Limits
from starling.core.tools import Effect, ServerListing
from tests.support.platform import Workbench

type Listings = tuple[ServerListing, ...]


@pytest.fixture
async def listings(engine: AsyncEngine, workbench: Workbench) -> Listings:
    async with open_gateway(ServerRepository(engine), Limits(), {}) as gateway:
        return await listed(gateway, workbench, "read")


async def listed(gateway: Gateway, workbench: Workbench, effect: str) -> Listings:
    options: dict[str, Any] = workbench.as_server(effect)
    return await gateway.sync({"bench": server_of(options)})


@pytest.fixture
def registry(engine: AsyncEngine) -> Registry:
    return Registry(EpochRepository(engine))


def changed(listings: Listings, **what: Any) -> Listings:
    (server,) = listings
    first, *others = server.tools
    return (replace(server, tools=(replace(first, **what), *others)),)


async def test_the_same_content_keeps_its_number(registry: Registry, listings: Listings) -> None:
    first = await registry.publish(listings)
    second = await registry.publish(tuple(reversed(listings)))

    assert first == second
    assert first.number == 1


@pytest.mark.parametrize("what", [{"hash": "0" * 64}, {"effect": Effect.UNSAFE}], ids=["definition", "effect"])
async def test_a_changed_tool_makes_a_new_epoch(registry: Registry, listings: Listings, what: dict[str, Any]) -> None:
    first = await registry.publish(listings)
    second = await registry.publish(changed(listings, **what))
    third = await registry.publish(listings)

    assert [first.number, second.number, third.number] == [1, 2, 3]


async def test_many_publishers_make_one_epoch_of_one_content(engine: AsyncEngine, listings: Listings) -> None:
    registries = [Registry(EpochRepository(engine)) for _ in range(6)]

    published = await asyncio.gather(*(registry.publish(listings) for registry in registries))

    assert {epoch.number for epoch in published} == {1}


async def test_many_publishers_of_different_contents_leave_one_active(engine: AsyncEngine, listings: Listings) -> None:
    registries = [Registry(EpochRepository(engine)) for _ in range(6)]
    contents = [changed(listings, hash=str(number) * 64) for number in range(6)]

    published = await asyncio.gather(
        *(registry.publish(content) for registry, content in zip(registries, contents, strict=True))
    )

    assert sorted(epoch.number for epoch in published) == [1, 2, 3, 4, 5, 6]
    assert await EpochRepository(engine).active_number() == 6


async def test_a_roster_has_one_specialist_for_each_server_and_the_builtins(
    registry: Registry, listings: Listings
) -> None:
    epoch = await registry.publish(listings)

    roster = await registry.roster(epoch.number)

    assert list(roster.cards) == ["mcp_agent_bench", "coder", "generalist"]
    card = roster.cards["mcp_agent_bench"]
    assert (card.server, card.description) == ("bench", "A bench with simple tools.")
    assert {tool.name for tool in card.tools} == {tool.name for tool in listings[0].tools}
    assert {tool.effect for tool in card.tools} == {Effect.READ}


async def test_an_old_epoch_keeps_its_roster(registry: Registry, engine: AsyncEngine, listings: Listings) -> None:
    first = await registry.publish(listings)
    await registry.publish(())

    old = await Registry(EpochRepository(engine)).roster(first.number)

    assert "mcp_agent_bench" in old.cards


async def test_an_epoch_that_never_was_is_not_found(registry: Registry) -> None:
    with pytest.raises(NotFoundError, match="There is no epoch '7'"):
        await registry.roster(7)
