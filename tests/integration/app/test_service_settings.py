"""The setting EXECUTION_SERVICE_URL adds a server that files neither name nor remove; its token stays a reference."""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from mcp_gateway.configuration.servers import parse_config, server_of
from mcp_gateway.registration.repository import ServerRepository
from starling.app.container.configuration import check_configuration
from starling.app.container.database import Database
from starling.app.container.services import open_services
from starling.app.services import Services
from starling.core.errors import ConfigurationError, ForbiddenError
from starling.core.settings.schema import Settings
from starling.infra.postgres.audit import Actor
from tests.support.execution_service import ExecutionService
from tests.support.gateway_harness import call, named
from tests.support.worker_runtime import WorkerRuntime, open_worker_runtime

TOKEN = "token-of-the-execution-service"
NO_SERVERS = '{"mcpServers": {}}'


@pytest.fixture
def service(tmp_path: Path) -> ExecutionService:
    return ExecutionService(tmp_path / "requests")


@asynccontextmanager
async def platform(database_url: str, **given: Any) -> AsyncGenerator[tuple[Services, WorkerRuntime]]:
    settings = Settings(database_url=SecretStr(database_url), model=("offline:rules",), **given)
    async with (
        open_services(settings, Database(database_url, database_url)) as services,
        open_worker_runtime(settings, services) as runtime,
    ):
        yield services, runtime


async def servers(services: Services) -> dict[str, str]:
    return {row.name: row.source for row in await ServerRepository(services.storage.engine).servers()}


@pytest.mark.parametrize("with_file", [True, False])
async def test_service_of_the_settings_is_a_server_until_the_setting_goes(
    database_url: str, service: ExecutionService, tmp_path: Path, *, with_file: bool
) -> None:
    file: dict[str, Any] = {"mcp_config": tmp_path / "mcp.json"} if with_file else {}
    (tmp_path / "mcp.json").write_text(NO_SERVERS)
    with service.running():
        async with platform(
            database_url, execution_service_url=service.url, execution_service_token=SecretStr(TOKEN), **file
        ) as (services, runtime):
            listing = named(runtime.listings, "execution_service")
            said = await call(runtime.gateway, listing, "echo", text="hello")
            for source in ("file", "api"):
                await services.registry.reload(parse_config(NO_SERVERS, "x"), Actor.local("test"), source=source)
            kept = await servers(services)
            rows = await ServerRepository(services.storage.engine).servers()
        async with platform(database_url, **file) as (services, _):
            gone = await servers(services)

    assert (listing.state, said.text) == ("ready", "hello")
    assert kept == {"execution_service": "file"}
    assert gone == {}
    assert TOKEN not in json.dumps([row.config for row in rows])
    assert {request["headers"]["authorization"] for request in service.requests()} == {f"Bearer {TOKEN}"}


async def test_entry_of_a_file_replaces_the_service_of_the_settings(
    database_url: str, service: ExecutionService, tmp_path: Path
) -> None:
    own = {"type": "execution_service", "url": service.url, "x-starling": {"effect": "read"}}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"execution_service": own}}))
    with service.running():
        async with platform(database_url, execution_service_url="http://127.0.0.1:9", mcp_config=file) as (_, runtime):
            listing = named(runtime.listings, "execution_service")

    assert {tool.effect for tool in listing.tools} == {"read"}


@pytest.mark.parametrize("with_file", [True, False])
async def test_server_that_was_added_on_the_machine_is_used_instead_of_the_service_of_the_settings(
    database_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, *, with_file: bool
) -> None:
    (tmp_path / "mcp.json").write_text(NO_SERVERS)
    added = server_of({"command": sys.executable, "args": ["-m", "mcp_gateway.servers.system_health"]})
    async with platform(database_url) as (_, runtime):
        await runtime.gateway.catalog.add("execution_service", added)
    file: dict[str, Any] = {"mcp_config": tmp_path / "mcp.json"} if with_file else {}
    async with platform(database_url, execution_service_url="http://127.0.0.1:9", **file) as (services, runtime):
        kept = await servers(services)
        listing = named(runtime.listings, "execution_service")

    assert kept == {"execution_service": "host"}
    assert listing.state == "ready"
    assert "EXECUTION_SERVICE_URL is not used" in caplog.text


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("localhost", "EXECUTION_SERVICE_URL is not an http"),
        ("http://localhost/?tenant=1", "EXECUTION_SERVICE_URL has a `\\?` or `#`"),
        ("http://localhost/#a", "EXECUTION_SERVICE_URL has a `\\?` or `#`"),
    ],
)
def test_address_that_is_none_is_refused_at_the_start(url: str, fault: str) -> None:
    with pytest.raises(ConfigurationError, match=fault):
        check_configuration(Settings(model=("offline:rules",), execution_service_url=url))


async def test_document_over_http_adds_no_server_in_the_process_and_is_not_sent_the_token(
    database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "mcp.json").write_text(NO_SERVERS)
    inside = {"type": "inprocess", "entry_point": "functions"}
    sent = {
        "type": "execution_service",
        "url": "https://service.example",
        "headers": {"Authorization": "Bearer ${EXECUTION_SERVICE_TOKEN}"},
    }
    async with platform(database_url, mcp_config=tmp_path / "mcp.json") as (services, _):
        for document, reason in ((inside, "in the platform's own process"), (sent, "it would be sent")):
            config = parse_config(json.dumps({"mcpServers": {"a": document}}), "x")
            with pytest.raises(ForbiddenError, match=reason):
                await services.registry.reload(config, Actor.local("test"), source="api")
        found = await servers(services)

    assert found == {}
