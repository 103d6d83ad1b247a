"""The real API on a real socket, over a real platform whose model is `offline:rules`."""

import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from pydantic import SecretStr

from starling.app.access.keys import KeySpec
from starling.app.container.database import Database
from starling.app.container.services import open_services
from starling.app.services import Services
from starling.core.ids import new_id
from starling.core.principal import DEFAULT_TENANT, HOST_ADMIN, Grant, Scope
from starling.core.settings.schema import Settings
from starling.infra.postgres.audit import Actor
from tests.support.http_app import served_api
from tests.support.http_client import ApiClient
from tests.support.sse import Event, read_events
from tests.support.worker_runtime import open_worker_runtime, running_worker

SERVERS = {
    "system_health": {
        "command": sys.executable,
        "args": ["-m", "mcp_gateway.servers.system_health"],
        "x-starling": {"effect": "read"},
    },
    "broken": {"command": "no-such-command-anywhere"},
}


@dataclass(frozen=True, slots=True)
class LiveApi(ApiClient):
    """A client of an API, and the store behind it."""

    services: Services

    async def key(self, *scopes: Scope, tenant: str = DEFAULT_TENANT, grant: Grant | None = None) -> dict[str, str]:
        """Return the header that shows a new key."""
        spec = KeySpec("test", tenant, frozenset(scopes), grant)
        _, key = await self.services.storage.keys.create(HOST_ADMIN, spec, Actor.local("test"))
        return {"Authorization": f"Bearer {key}"}

    async def ask(self, text: str, thread_id: str = "", **more: object) -> list[Event]:
        """Send a request, on a thread of its own if none is named, and return its whole stream."""
        body = {"input": text, "thread_id": thread_id or new_id(), **more}
        async with self.client.post("/v1/agent/run", json=body) as response:
            assert response.status == 200, await response.text()
            return [event async for event in read_events(response)]


@asynccontextmanager
async def running_api(
    database_url: str, folder: Path, servers: Mapping[str, Any], **others: Any
) -> AsyncGenerator[LiveApi]:
    """Run a platform with the given MCP servers until the block ends; its `mcp.json` is in the folder."""
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    settings = Settings(database_url=SecretStr(database_url), mcp_config=file, model=("offline:rules",), **others)
    database = Database(database_url, database_url)
    async with (
        open_services(settings, database) as services,
        open_worker_runtime(settings, services) as worker_runtime,
        running_worker(worker_runtime.worker),
        served_api(settings, services) as served,
    ):
        yield LiveApi(served.url, served.client, services)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[LiveApi]:
    """One platform for a module: its tests keep apart by their threads."""
    async with running_api(module_database_url, tmp_path_factory.mktemp("api"), SERVERS) as api:
        yield api
