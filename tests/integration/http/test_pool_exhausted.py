"""With an exhausted connection pool requests fail in time, streams and workers go on, and it recovers."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from psycopg import AsyncConnection, OperationalError
from pydantic import SecretStr
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from starling.app.access.keys import KeySpec
from starling.app.container.database import Database
from starling.app.container.services import open_services
from starling.app.services import Services
from starling.core.ids import new_id
from starling.core.principal import HOST_ADMIN, Scope
from starling.core.settings.schema import ProviderSettings, Settings
from starling.infra.postgres import availability
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.embedded.server import EmbeddedPostgres
from starling.infra.postgres.schema import upgrade
from tests.support.gateway_harness import wait_for
from tests.support.http_app import served_api
from tests.support.model_script import Answer
from tests.support.model_server import ModelServer
from tests.support.platform import ScriptedModel, decision, task, verdict
from tests.support.sse import read_events
from tests.support.worker_runtime import open_worker_runtime, running_worker

REQUEST = {"input": "Write it.", "thread_id": "another"}
TEXT = " ".join(f"word{number}" for number in range(40))
ASKED: tuple[tuple[str, str, Any], ...] = (  # what can't be answered without Postgres
    ("GET", "/ready", None),
    ("GET", "/v1/runs", None),
    ("GET", "/v1/runs/{run}", None),
    ("GET", "/v1/runs/{run}/events", None),
    ("GET", "/v1/runs/{run}/calls", None),
    ("POST", "/v1/runs/{run}/cancel", {}),
    ("POST", "/v1/runs/{run}/resume", [{"interruptId": new_id(), "status": "cancelled"}]),
    ("POST", "/v1/runs", REQUEST),
    ("POST", "/v1/runs", REQUEST | {"multitask_strategy": "interrupt"}),
    ("POST", "/v1/agent/run", REQUEST),
    ("POST", "/process", REQUEST),
    ("GET", "/v1/approvals", None),
    ("POST", f"/v1/approvals/{new_id()}", {"status": "cancelled"}),
    ("GET", "/v1/agents", None),
    ("GET", "/v1/registry", None),
    ("POST", "/v1/registry/plan", {"mcpServers": {}}),
    ("POST", "/v1/registry/reload", {"mcpServers": {}}),
    ("GET", "/v1/switches", None),
    ("PUT", "/v1/switches", {"kind": "server", "name": "time", "reason": "It lies."}),
)
REFUSED = (503, "database_unavailable", True, "1")
FULL = b"""
SELECT count(*) = current_setting('max_connections')::int FROM pg_stat_activity WHERE backend_type = 'client backend'"""
CROWDED = b"SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'crowd'"


@dataclass(frozen=True, slots=True)
class Town:
    """An API and a worker over connections of their own, and the model of the one run that streams."""

    client: aiohttp.ClientSession
    services: Services
    model: ModelServer

    async def begin(self) -> str:
        async with self.client.post("/v1/runs", json=REQUEST | {"thread_id": new_id()}) as response:
            assert response.status == 202, await response.text()
            return (await response.json())["run_id"]

    @asynccontextmanager
    async def reading(self, run_id: str) -> AsyncGenerator[asyncio.Task[list[str]]]:
        """Read a run's stream, which has begun to write its answer, from another task: it gives all types."""
        begun = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self._read(run_id, begun))
            await begun.wait()
            yield task

    async def _read(self, run_id: str, begun: asyncio.Event) -> list[str]:
        types: list[str] = []
        async with self.client.get(f"/v1/runs/{run_id}/events") as response:
            async for event in read_events(response):
                types.append(event.type)
                assert event.id == len(types)
                if event.type == "thinking":
                    begun.set()
        return types

    async def refusal(self, method: str, path: str, body: Any, **headers: str) -> tuple[int, str, bool, str]:
        """Return the status, code, whether there is a remedy, and when to come again."""
        async with self.client.request(method, path, json=body, headers=headers) as response:
            if response.content_type != "application/problem+json":
                return response.status, "", False, ""
            problem = await response.json()
            return response.status, problem["code"], bool(problem["remedy"]), response.headers.get("Retry-After", "")

    async def refusals(self, run: str) -> dict[str, tuple[int, str, bool, str]]:
        """Ask everything at once, with and without a key; return what is said to each."""
        asked = [(method, path.format(run=run), body) for method, path, body in ASKED]
        key = "sk-starling-" + "0" * 32 + "-" + "a" * 43
        said = await asyncio.gather(
            *(self.refusal(*request) for request in asked),
            self.refusal("GET", "/v1/runs", None, Authorization=f"Bearer {key}"),
        )
        names = [*(f"{number} {method} {path}" for number, (method, path, _) in enumerate(asked)), "with a key"]
        return dict(zip(names, said, strict=True))


@asynccontextmanager
async def open_town(database_url: str, folder: Path) -> AsyncGenerator[Town]:
    script = ScriptedModel()
    script.supervisor(decision(task("t1", "generalist")))
    script.agent("t1", Answer(TEXT, hold="rest", hold_after=5))
    script.reviewer(verdict("APPROVED", "fits"))
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {}}))
    async with ModelServer(script) as model:
        settings = Settings(
            database_url=SecretStr(database_url),
            mcp_config=folder / "mcp.json",
            model=("scripted:small",),
            providers={"scripted": ProviderSettings(base_url=model.url)},
        )
        database = Database(database_url, database_url)
        async with (
            open_services(settings, database) as elsewhere,
            open_worker_runtime(settings, elsewhere) as worker_runtime,
            running_worker(worker_runtime.worker),
            open_services(settings, database) as services,
            served_api(settings, services) as served,
        ):
            yield Town(served.client, services, model)


@pytest.fixture
async def town(database_url: str, tmp_path: Path) -> AsyncGenerator[Town]:
    async with open_town(database_url, tmp_path) as town:
        yield town


def pool_of(engine: AsyncEngine) -> AsyncAdaptedQueuePool:
    assert isinstance(engine.pool, AsyncAdaptedQueuePool)
    return engine.pool


def wait_shortly(engine: AsyncEngine) -> None:
    """Have requests wait 1 s for a connection of the pool instead of 10 s."""
    pool_of(engine)._timeout = 1.0  # pyright: ignore[reportPrivateUsage]


@asynccontextmanager
async def all_in_use(engine: AsyncEngine) -> AsyncGenerator[None]:
    """Hold every connection of a pool."""
    async with AsyncExitStack() as stack:
        for _ in range(pool_of(engine).size()):
            await stack.enter_async_context(engine.connect())
        yield


@asynccontextmanager
async def no_more_clients(url: str) -> AsyncGenerator[None]:
    """Hold every connection that the server has left; at the end they are free again."""
    async with await AsyncConnection.connect(url, autocommit=True) as watcher, AsyncExitStack() as crowd:
        while not await _answer(watcher, FULL):
            with suppress(OperationalError):  # one that has just ended may still count
                await crowd.enter_async_context(await AsyncConnection.connect(url, application_name="crowd"))
        yield
        await crowd.aclose()
        while await _answer(watcher, CROWDED):
            pass


async def _answer(watcher: AsyncConnection[Any], query: bytes) -> bool:
    row = await (await watcher.execute(query)).fetchone()
    assert row is not None
    return row[0]


async def test_requests_are_refused_and_streams_continue_while_all_connections_are_in_use(town: Town) -> None:
    wait_shortly(town.services.storage.engine)
    run_id = await town.begin()
    async with town.reading(run_id) as stream:
        async with all_in_use(town.services.storage.engine):
            refusing = asyncio.get_running_loop().create_task(town.refusals(run_id))
            town.model.release("rest")
            types = await stream
            again = await town.refusal("GET", "/health", None)
            said = await refusing
        after = await town.begin()

    assert said == dict.fromkeys(said, REFUSED)
    assert (types[0], types[-1], types.count("done")) == ("run_started", "done", 1)
    assert again == (200, "", False, "")
    assert (await town.client.get(f"/v1/runs/{after}")).status == 200


async def test_requests_wait_for_connections_that_other_requests_hold(town: Town, database_url: str) -> None:
    _, key = await town.services.storage.keys.create(
        HOST_ADMIN, KeySpec("test", "default", frozenset(Scope)), Actor.local("test")
    )
    pool = pool_of(town.services.storage.engine)
    shown = {"Authorization": f"Bearer {key}"}
    async with asyncio.TaskGroup() as group, await AsyncConnection.connect(database_url) as other:
        await other.execute("LOCK TABLE keys IN ACCESS EXCLUSIVE MODE")
        keyed = [group.create_task(town.refusal("GET", "/v1/runs", None, **shown)) for _ in range(2 * pool.size())]
        await wait_for(lambda: pool.checkedout() == pool.size(), seconds=9)
        keyless = group.create_task(town.refusal("GET", "/v1/runs", None))
        health = await town.refusal("GET", "/health", None)

    assert {task.result() for task in (*keyed, keyless)} == {(200, "", False, "")}
    assert health == (200, "", False, "")


async def test_requests_are_refused_while_postgres_accepts_no_more_clients(
    open_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(availability, "_FRESH_SECONDS", 1000.0)  # a check would open a connection
    with EmbeddedPostgres(open_folder, durable=False) as postgres:
        await upgrade(postgres.url)
        async with open_town(postgres.url, tmp_path) as town:
            wait_shortly(town.services.storage.engine)
            run_id = await town.begin()
            async with town.reading(run_id) as stream:
                await town.services.storage.engine.dispose()
                async with no_more_clients(postgres.url):
                    said = await town.refusals(run_id)
                after = await town.begin()
                town.model.release("rest")
                types = await stream

            assert said == dict.fromkeys(said, REFUSED)
            assert types[-1] == "done"
            assert (await town.client.get(f"/v1/runs/{after}")).status == 200
