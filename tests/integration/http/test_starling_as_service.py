"""One Starling as the execution service of another: reads, changes under one key, refusals, and calls that wait."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from sqlalchemy.ext.asyncio import AsyncEngine

from mcp_gateway.configuration.servers import ServerConfig, server_of
from starling.app.access.keys import KeySpec
from starling.app.container.database import Database
from starling.app.container.services import open_services
from starling.core.clock import Deadline, SystemClock
from starling.core.ids import new_id
from starling.core.principal import DEFAULT_TENANT, HOST_ADMIN, Scope
from starling.core.settings.schema import ProviderSettings, Settings
from starling.core.tool_calls import CallState, Effect, state_after_answer
from starling.core.tools import ToolCall
from starling.infra.postgres.audit import Actor
from tests.support.effect_recorder import EffectRecorder
from tests.support.gateway_harness import GatewayHarness, call
from tests.support.http_app import served_api
from tests.support.worker_runtime import open_worker_runtime, running_worker

NO_MODEL = {"nobody": ProviderSettings(base_url="http://127.0.0.1:9")}


@asynccontextmanager
async def serving(
    database_url: str, folder: Path, effects: EffectRecorder, **options: Any
) -> AsyncGenerator[tuple[str, str]]:
    """Run the Starling that is the service; give its address and a key of the scope `service`."""
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"effects": effects.as_server(**options)}}))
    settings = Settings(
        database_url=SecretStr(database_url), mcp_config=file, model=("nobody:model",), providers=NO_MODEL
    )
    async with (
        open_services(settings, Database(database_url, database_url)) as services,
        open_worker_runtime(settings, services) as runtime,
        running_worker(runtime.worker),
        served_api(settings, services) as api,
    ):
        spec = KeySpec("service", DEFAULT_TENANT, frozenset({Scope.SERVICE}), None)
        _, key = await services.storage.keys.create(HOST_ADMIN, spec, Actor.local("test"))
        yield api.url, key


def service(url: str, **options: Any) -> ServerConfig:
    headers = {"Authorization": "Bearer ${KEY}"}
    return server_of({"type": "execution_service", "url": url, "headers": headers, "x-starling": options})


async def test_calls_go_through_and_a_repeated_key_is_one_call(
    engine: AsyncEngine, module_database_url: str, tmp_path: Path
) -> None:
    effects, tools = EffectRecorder(tmp_path / "effects.jsonl"), {"effects.read_it": {"effect": "read"}}
    async with serving(module_database_url, tmp_path, effects) as (url, key):
        harness = GatewayHarness(engine, tmp_path, {"KEY": key})
        async with harness.listing(service(url, tools=tools)) as (gateway, listing):
            read = await call(gateway, listing, "effects.read_it", what="a")
            charge = next(tool for tool in listing.tools if tool.name == "effects.charge")
            charged = [
                await gateway.call(
                    ToolCall(new_id(), "run", "t1", charge, {"what": "b"}, idempotency_key="same"),
                    Deadline(SystemClock(), 30),
                )
                for _ in range(2)
            ]
            refused = await call(gateway, listing, "effects.charge", what=3)

    assert {tool.name: tool.hinted for tool in listing.tools}["effects.charge"] is Effect.UNSAFE
    assert (read.status, "read_it a" in read.text) == ("succeeded", True)
    assert [outcome.status for outcome in charged] == ["succeeded", "succeeded"]
    assert refused.status == "failed"
    assert effects.done() == ["read_it a", "charge b"]


async def test_call_that_waits_for_a_person_there_is_in_doubt_here(
    engine: AsyncEngine, module_database_url: str, tmp_path: Path
) -> None:
    effects = EffectRecorder(tmp_path / "effects.jsonl")
    async with serving(module_database_url, tmp_path, effects, approval="unsafe") as (url, key):
        harness = GatewayHarness(engine, tmp_path, {"KEY": key})
        async with harness.listing(service(url, timeout=5)) as (gateway, listing):
            outcome = await call(gateway, listing, "effects.charge", what="b")

    assert state_after_answer(outcome.observation, Effect.UNSAFE) is CallState.IN_DOUBT
    assert "is 'waiting'" in outcome.text
    assert effects.done() == []
