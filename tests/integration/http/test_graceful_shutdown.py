"""A stopping API drains requests and closes streams; readers reconnect to another process."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import aiohttp
import httpx
import openai
import pytest
from fastapi import FastAPI
from pydantic import SecretStr
from sqlalchemy import QueuePool

from starling.app.container.database import Database
from starling.app.container.services import open_services
from starling.app.http import uvicorn_server
from starling.app.http.app_state import drain
from starling.app.http.authentication import open_access_control
from starling.app.http.listener import bind
from starling.app.http.uvicorn_server import serving
from starling.app.services import Services
from starling.core.settings.schema import Settings
from tests.support.http_app import make_app
from tests.support.local_access import AS_ADMIN, TOKEN
from tests.support.openai_clients import openai_client
from tests.support.sse import read_events
from tests.support.tcp_proxy import proxied

_PROBLEM = "application/problem+json"


@dataclass(frozen=True)
class Opened:
    """An API that can be closed before its client."""

    app: FastAPI
    services: Services
    url: str
    client: aiohttp.ClientSession
    closing: AsyncExitStack


@asynccontextmanager
async def opened(database_url: str) -> AsyncGenerator[Opened]:
    settings = Settings(database_url=SecretStr(database_url))
    async with (
        open_services(settings, Database(database_url, database_url)) as services,
        open_access_control(settings, services.storage.keys, TOKEN) as access,
        AsyncExitStack() as closing,
    ):
        app = make_app(services, "test", access)
        url = await closing.enter_async_context(serving(app, bind("127.0.0.1", 0)))
        async with aiohttp.ClientSession(url, headers=AS_ADMIN) as client:
            yield Opened(app, services, url, client, closing)


async def test_live_stream_ends_between_two_events_at_shutdown(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uvicorn_server, "_STOP_SECONDS", 600)  # it would be cut off then
    body = {"input": "Nobody works on this.", "thread_id": "t"}
    async with opened(database_url) as api, api.client.post("/v1/agent/run", json=body) as response:
        events = read_events(response)
        first = await anext(events)

        async with asyncio.timeout(60):
            await api.closing.aclose()
        rest = [event async for event in events]

    assert (first.type, rest) == ("run_started", [])


async def test_live_stream_of_an_openai_client_ends_with_an_error_at_shutdown(database_url: str) -> None:
    async with opened(database_url) as api, openai_client(api.url) as client:
        stream = await client.chat.completions.create(
            model="starling", messages=[{"role": "user", "content": "hello"}], stream=True
        )
        await anext(stream)

        async with asyncio.timeout(60):
            await api.closing.aclose()
        with pytest.raises(openai.APIError, match="had to stop"):
            await anext(stream)


async def test_draining_server_is_alive_and_accepts_runs_but_is_not_ready(database_url: str) -> None:
    async with opened(database_url) as api:
        async with api.client.get("/ready") as response:
            before = response.status
        drain(api.app)
        async with api.client.get("/ready") as response:
            after, said = response.status, await response.json(content_type=_PROBLEM)
        async with api.client.get("/health") as response:
            health = response.status
        async with api.client.post("/v1/runs", json={"input": "Later, then.", "thread_id": "t"}) as response:
            accepted = response.status

    assert (before, after, health, accepted) == (200, 503, 200, 202)
    assert said["code"] == "draining"


async def test_request_waiting_for_a_stopped_postgres_is_answered_before_shutdown_ends(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uvicorn_server, "_STOP_SECONDS", 0.5)
    async with proxied(database_url) as database, opened(database.url) as api, asyncio.timeout(60):
        await answered(api.client)  # over a connection that stays
        while served():  # noqa: ASYNC110 - its server is another task
            await asyncio.sleep(0.01)
        database.proxy.freeze()
        asked = asyncio.create_task(answered(api.client))
        while not served() or not in_use(api.services):  # noqa: ASYNC110 - other tasks use connections, too
            await asyncio.sleep(0.01)
        await api.closing.aclose()
        status, said = await asked
        database.proxy.thaw()

    assert (status, said["code"]) == (503, "draining")


async def test_stopping_server_is_not_ready(database_url: str) -> None:
    async with opened(database_url) as api:
        await api.closing.aclose()
        past_the_socket = httpx.ASGITransport(api.app)  # which nobody reaches any more, but for who was connected
        async with httpx.AsyncClient(transport=past_the_socket, base_url="http://localhost") as client:
            response = await client.get("/ready")

    assert (response.status_code, response.json()["code"]) == (503, "draining")


async def answered(client: aiohttp.ClientSession) -> tuple[int, dict[str, object]]:
    async with client.get("/v1/agents") as response:
        return response.status, await response.json(content_type=None)


def served() -> int:
    """Return how many requests the server in this loop is answering."""
    return sum("run_asgi" in str(task.get_coro()) for task in asyncio.all_tasks())


def in_use(services: Services) -> int:
    """How many connections are used now."""
    pool = services.storage.engine.pool
    assert isinstance(pool, QueuePool)
    return pool.checkedout()
