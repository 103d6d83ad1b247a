"""A server whose calls fail at once in a worker, as an API process without sessions shows it."""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest

from mcp_gateway.connections import connect
from mcp_gateway.gateway import Gateway
from mcp_gateway.registration.repository import ServerRepository
from starling.app.registry.epoch_publisher import EpochPublisher
from starling.core.settings.schema import Limits
from starling.core.tools import ServerListing
from starling.infra.postgres.audit import Actor
from tests.integration.http.test_event_streams import Quiet, a_quiet_api
from tests.support.absent_services import open_gateway
from tests.support.gateway_harness import call, free_port, listed, running_http

AGENT = "mcp_agent_a"


@pytest.fixture
async def api(database_url: str) -> AsyncGenerator[Quiet]:
    async with a_quiet_api(database_url) as api:
        yield api


@pytest.fixture
async def worker(api: Quiet) -> AsyncGenerator[Gateway]:
    """The gateway of another process on the API's database."""
    publisher = EpochPublisher(api.services.storage.epochs, Actor.local("test"), "registry.start")
    async with open_gateway(ServerRepository(api.services.storage.engine, publisher), connect, Limits(), {}) as gateway:
        yield gateway


async def fail_until_refused(worker: Gateway, listing: ServerListing) -> str:
    """Call a server until its calls fail at once; return what the last one says."""
    refused = await call(worker, listing, "pid")
    while is_ready(worker) or "times in a row" not in refused.text:
        assert refused.code == "server_unavailable"
        refused = await call(worker, listing, "pid")
    return refused.text


def is_ready(worker: Gateway) -> bool:
    """Whether the server's card is ready in runs of this worker."""
    listing = worker.listing("a")
    return listing is not None and listing.state == "ready"


async def shown(api: Quiet, path: str) -> Mapping[str, Any]:
    return await api.get(path)


async def server_shown(api: Quiet, *, failing: bool) -> Mapping[str, Any]:
    """Return the server as it is listed once it is shown as failing, or as working."""
    async with asyncio.timeout(60):
        while True:
            [server] = (await shown(api, "/v1/servers"))["servers"]
            if bool(server["breakers"]) is failing:
                return server


async def gauge(api: Quiet) -> float:
    async with api.client.get("/metrics") as response:
        lines = (await response.text()).splitlines()
    return next((float(line.split()[1]) for line in lines if line.startswith("starling_server_breakers_open{")), 0.0)


async def test_failing_server_of_a_worker_is_shown_by_the_api_until_it_answers_again(
    api: Quiet, worker: Gateway, tmp_path: Path
) -> None:
    port = free_port()
    with running_http(tmp_path / "record", port) as config:
        listing = await listed(worker, config)
    refusal = await fail_until_refused(worker, listing)

    server = await server_shown(api, failing=True)
    [breaker] = server["breakers"]
    agents = (await shown(api, "/v1/agents"))["agents"]
    [card] = [agent for agent in agents if agent["name"] == AGENT]
    ready = await shown(api, "/ready")
    assert re.search(r"\d times in a row and is tried again in \d+ s", refusal)
    assert (server["state"], breaker["failures"] >= 4, "can't be reached" in breaker["reason"]) == ("ready", True, True)
    assert (card["state"], breaker["reason"] in card["reason"]) == ("degraded", True)
    assert ready["servers"][0]["breakers"] == (await shown(api, "/v1/servers/a"))["breakers"] == [breaker]
    assert await gauge(api) == 1

    with running_http(tmp_path / "record", port):
        while (await call(worker, listing, "pid")).status == "failed":  # noqa: ASYNC110 - the clock is the breaker's
            await asyncio.sleep(0.02)
        assert not (await server_shown(api, failing=False))["breakers"]
        assert is_ready(worker)


async def test_worker_that_ends_takes_back_what_it_stored(api: Quiet, tmp_path: Path) -> None:
    async with open_gateway(ServerRepository(api.services.storage.engine), connect, Limits(), {}) as worker:
        with running_http(tmp_path / "record", free_port()) as config:
            listing = await listed(worker, config)
        await fail_until_refused(worker, listing)
        await server_shown(api, failing=True)

    await server_shown(api, failing=False)


async def test_rows_of_a_process_that_was_killed_expire(api: Quiet, database_url: str) -> None:
    stored = ServerRepository(api.services.storage.engine).breakers
    await stored.save("a", "killed", 4, "it ended.", 1)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("UPDATE server_breakers SET expires_at = now() - interval '1 second'")

    gone = await stored.by_server()
    await stored.save("b", "alive", 4, "it ended.", 1)

    assert (gone, await rows(database_url)) == ({}, [("alive",)])


async def rows(database_url: str) -> list[tuple[Any, ...]]:
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        return await (await connection.execute("SELECT process FROM server_breakers")).fetchall()
