"""Epochs: numbered by content, made one at a time, with their servers."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from brain.registry.manifest import Epoch
from brain.registry.repository import AgentRepository, EpochRepository, PromptRepository, StarRepository
from brain.registry.service import Registry
from mcp_gateway.configuration.servers import server_of
from mcp_gateway.connections import connect
from mcp_gateway.registration.repository import ListedServer, ServerRepository, ServerRow
from starling.app.registry.epoch_publisher import EpochPublisher
from starling.core.errors import NotFoundError
from starling.core.settings.schema import Limits
from starling.core.tool_calls import Effect
from starling.infra.postgres.audit import Actor
from tests.support.absent_services import open_gateway
from tests.support.platform import Workbench

ACTOR = Actor.local("cli")


@pytest.fixture
async def bench(engine: AsyncEngine, workbench: Workbench) -> ServerRow:
    """A server that was listed and is not part of any epoch yet."""
    servers = ServerRepository(engine)
    async with open_gateway(servers, connect, Limits(), {}) as gateway:
        await gateway.catalog.sync({"bench": server_of(workbench.as_server("read"))})
    (row,) = await servers.servers()
    return row


@pytest.fixture
def registry(engine: AsyncEngine) -> Registry:
    repositories = AgentRepository(engine), StarRepository(engine), PromptRepository(engine)
    return Registry(EpochRepository(engine), *repositories)


async def publish(engine: AsyncEngine, *rows: ServerRow, gone: Sequence[str] = ()) -> Epoch:
    publisher = EpochPublisher(EpochRepository(engine), ACTOR, "test")
    await ServerRepository(engine, publisher).change(gone, [ListedServer(row, {}) for row in rows])
    return publisher.activation.epoch


def repinned(row: ServerRow, pin: str) -> ServerRow:
    return replace(row, tools=dict(row.tools) | {"look": pin * 64})


def as_unsafe(row: ServerRow) -> ServerRow:
    config = server_of(dict(row.config) | {"x-starling": {"effect": "unsafe"}})
    return replace(row, config=config.document, config_hash=config.hash)


async def test_publishing_the_same_content_keeps_the_epoch_number(engine: AsyncEngine, bench: ServerRow) -> None:
    first = await publish(engine, bench)
    second = await publish(engine, bench)

    assert first == second
    assert first.number == 1


@pytest.mark.parametrize("what", ["definition", "effect"])
async def test_changed_tool_creates_a_new_epoch(engine: AsyncEngine, bench: ServerRow, what: str) -> None:
    changed = repinned(bench, "0") if what == "definition" else as_unsafe(bench)

    numbers = [(await publish(engine, row)).number for row in (bench, changed, bench)]

    assert numbers == [1, 2, 3]


async def test_concurrent_publishers_of_one_content_create_one_epoch(engine: AsyncEngine, bench: ServerRow) -> None:
    published = await asyncio.gather(*(publish(engine, bench) for _ in range(6)))

    assert {epoch.number for epoch in published} == {1}


async def test_concurrent_publishers_of_different_contents_leave_one_active_epoch(
    engine: AsyncEngine, bench: ServerRow
) -> None:
    published = await asyncio.gather(*(publish(engine, repinned(bench, str(pin))) for pin in range(6)))

    assert sorted(epoch.number for epoch in published) == [1, 2, 3, 4, 5, 6]
    active = await EpochRepository(engine).active()
    (row,) = await ServerRepository(engine).servers()
    assert active.number == 6
    assert active.manifest.servers["bench"].tools["look"].hash == row.tools["look"]


async def test_server_change_is_rolled_back_when_publishing_its_epoch_fails(
    engine: AsyncEngine, bench: ServerRow
) -> None:
    async def refuse(*_: object) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        await ServerRepository(engine, refuse).change(["bench"], ())

    assert await ServerRepository(engine).servers() == [bench]


async def test_server_change_is_refused_after_a_concurrent_change(engine: AsyncEngine, bench: ServerRow) -> None:
    servers = ServerRepository(engine)
    await publish(engine, repinned(bench, "1"))

    assert not await servers.change(["bench"], (), known=[bench])
    assert await servers.servers() == [repinned(bench, "1")]


async def test_roster_has_one_specialist_per_server_and_the_built_in_agents(
    engine: AsyncEngine, registry: Registry, bench: ServerRow
) -> None:
    epoch = await publish(engine, bench)

    roster = await registry.roster(epoch.number, "default")

    assert next(iter(roster.cards)) == "mcp_agent_bench"
    assert {"coder", "generalist"} <= roster.cards.keys()
    card = roster.cards["mcp_agent_bench"]
    assert (card.server, card.description) == ("bench", "A bench with simple tools.")
    assert {tool.name for tool in card.tools} == bench.tools.keys()
    assert {tool.effect for tool in card.tools} == {Effect.READ}


async def test_tools_of_thousands_of_servers_are_read_at_once(
    engine: AsyncEngine, registry: Registry, bench: ServerRow
) -> None:
    many = replace(bench, name="many", tools={f"tool{number}": "0" * 64 for number in range(30_000)})
    epoch = await publish(engine, bench, many)

    roster = await registry.roster(epoch.number, "default")
    _, definitions = await ServerRepository(engine).servers_and_tools()

    assert {tool.name for tool in roster.cards["mcp_agent_bench"].tools} == bench.tools.keys()
    assert {name for _, name in definitions} == bench.tools.keys()


async def test_server_is_visible_to_its_named_tenants_only(
    engine: AsyncEngine, registry: Registry, bench: ServerRow
) -> None:
    options: dict[str, Any] = {"effect": "read", "tenants": ["red"]}
    config = server_of(dict(bench.config) | {"x-starling": options})
    epoch = await publish(engine, replace(bench, config=config.document, config_hash=config.hash))

    red, blue = [await registry.roster(epoch.number, tenant) for tenant in ("red", "blue")]

    assert "mcp_agent_bench" in red.cards
    assert "mcp_agent_bench" not in blue.cards
    assert "generalist" in blue.cards


async def test_roster_of_an_old_epoch_keeps_a_removed_server(
    engine: AsyncEngine, registry: Registry, bench: ServerRow
) -> None:
    first = await publish(engine, bench)
    await publish(engine, gone=["bench"])

    assert "mcp_agent_bench" in (await registry.roster(first.number, "default")).cards


async def test_unknown_epoch_is_not_found(registry: Registry) -> None:
    with pytest.raises(NotFoundError, match="There is no epoch '7'"):
        await registry.roster(7, "default")


async def test_epoch_without_runs_is_closed(engine: AsyncEngine, bench: ServerRow) -> None:
    epochs = EpochRepository(engine)
    await publish(engine, bench)
    await publish(engine, gone=["bench"])

    assert await epochs.close_unheld() == {2}
    assert [(record.number, record.closed_at is None) for record in await epochs.latest(5)] == [(2, True), (1, False)]
