"""A file that is watched: what it says counts a moment after it was written, and what is broken doesn't."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from brain.registry.repository import EpochRepository
from mcp_gateway.connections import connect
from starling.app.container.servers import build_registry
from starling.app.registry.file_watcher import FileWatcher
from starling.core.background_tasks import in_background
from starling.core.principal import SHARED
from starling.infra.postgres.audit import latest
from starling.infra.postgres.engine import open_engine
from tests.support.gateway_harness import SERVERS, wait_for
from tests.support.model_server import ModelServer
from tests.support.platform import Platform, Workbench, open_platform
from tests.support.tcp_proxy import proxied


@pytest.fixture
async def file(platform: Platform) -> AsyncGenerator[Path]:
    """The platform's file, watched."""
    file = platform.settings.mcp_config
    assert file is not None
    async with in_background(FileWatcher(file, platform.services.registry).follow(), "watch"):
        yield file


def write(file: Path, **servers: Any) -> None:
    """Write as editors do: beside it, then in its place."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps({"mcpServers": servers}))
    new.rename(file)


def specialists(platform: Platform) -> set[str]:
    names = ("bench", "shop", "extra")
    return {name for name in names if platform.worker_runtime.gateway.listing(name) is not None}


async def test_changed_file_is_reloaded(
    platform: Platform, file: Path, workbench: Workbench, engine: AsyncEngine
) -> None:
    write(file, extra=workbench.as_server("read"))

    await wait_for(lambda: specialists(platform) == {"extra"})

    newest, _ = await latest(engine, SHARED, limit=2)
    assert (newest.origin, newest.action) == ("file", "registry.reload")


@pytest.mark.parametrize(
    "broken", ['{"mcpServers": {', "[" * 100_000, r'{"mcpServers": {"a": {"command": "x", "args": ["\u0000"]}}}']
)
async def test_invalid_file_keeps_the_servers_until_it_is_corrected(
    platform: Platform, file: Path, workbench: Workbench, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    file.write_text(broken)

    await wait_for(lambda: "can't be used" in caplog.text)
    assert specialists(platform) == {"bench", "shop"}
    assert await platform.services.storage.epochs.active_number() == 1

    write(file, extra=workbench.as_server("read"))
    await wait_for(lambda: specialists(platform) == {"extra"})


async def test_file_changed_during_a_postgres_outage_is_reloaded_afterwards(
    platform: Platform, database_url: str, workbench: Workbench, caplog: pytest.LogCaptureFixture
) -> None:
    file, settings = platform.settings.mcp_config, platform.settings.model_copy(update={"watch_mcp_config": True})
    assert file is not None
    caplog.set_level("DEBUG", "starling.app.registry.file_watcher")
    async with proxied(database_url) as database:
        engine, port = open_engine(database.url), database.proxy.port
        registry = build_registry(
            replace(platform.services.storage, engine=engine, epochs=EpochRepository(engine)), settings, connect
        )
        async with in_background(FileWatcher(file, registry).follow(), "watch"):
            await database.proxy.stop()
            write(file, extra=workbench.as_server("read"))
            await wait_for(lambda: "can't be stored yet" in caplog.text)
            await database.proxy.start(port)
            await wait_for(lambda: specialists(platform) == {"extra"})
        await engine.dispose()


async def test_file_changed_during_startup_is_reloaded_afterwards(
    database_url: str, model: ModelServer, workbench: Workbench, tmp_path: Path
) -> None:
    follower, started, changed = str(SERVERS / "misbehaving.py"), tmp_path / "started", tmp_path / "changed"
    wait = (
        "import os, pathlib, sys, time; started, changed = map(pathlib.Path, sys.argv[1:3]); started.touch()\n"
        "while not changed.exists(): time.sleep(0.01)\n"
        "os.execv(sys.argv[3], sys.argv[3:])"
    )
    arguments = ["-c", wait, str(started), str(changed), sys.executable, follower, "well"]
    server = {"command": sys.executable, "args": arguments}

    async def change() -> None:
        await wait_for(started.exists)
        later = {"mcpServers": {"extra": workbench.as_server("read")}}
        await asyncio.to_thread((tmp_path / "mcp.json").write_text, json.dumps(later))
        changed.touch()

    async with asyncio.TaskGroup() as group:
        group.create_task(change())
        watched = {"watch_mcp_config": True}
        async with open_platform(database_url, model, {"bench": server}, tmp_path, tracing=watched) as platform:
            assert {listing.name for listing in platform.worker_runtime.listings} == {"bench"}

            await wait_for(lambda: specialists(platform) == {"extra"})
