"""Single tool calls over HTTP, in a process with sessions and in one without; no model is there to be asked."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from starling.app.access.keys import KeySpec
from starling.app.container.database import Database
from starling.app.container.services import open_services
from starling.app.services import Services
from starling.core.principal import DEFAULT_TENANT, HOST_ADMIN, Grant, Scope
from starling.core.settings.schema import Limits, ProviderSettings, Settings
from starling.infra.postgres.audit import Actor
from tests.support.effect_recorder import EffectRecorder
from tests.support.http_app import served_api
from tests.support.http_client import ApiClient
from tests.support.worker_runtime import open_worker_runtime, running_worker

NO_MODEL = {"nobody": ProviderSettings(base_url="http://127.0.0.1:9")}
type Headers = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Office(ApiClient):
    """An API beside a worker, and what its server has done."""

    services: Services
    effects: EffectRecorder

    async def execute(self, tool: str, status: int = 200, *, headers: Headers | None = None, **body: Any) -> Any:
        return await self.post("/execute", status, json={"tool_name": f"effects.{tool}", **body}, headers=headers)

    async def key(self, *scopes: Scope, tenant: str = DEFAULT_TENANT, grant: Grant | None = None) -> Headers:
        spec = KeySpec("test", tenant, frozenset(scopes), grant)
        _, key = await self.services.storage.keys.create(HOST_ADMIN, spec, Actor.local("test"))
        return {"Authorization": f"Bearer {key}"}


@asynccontextmanager
async def open_office(
    database_url: str, folder: Path, *, with_sessions: bool = False, tool_result_chars: int = 8_000, **options: Any
) -> AsyncGenerator[Office]:
    effects, file = EffectRecorder(folder / "effects.jsonl"), folder / "mcp.json"
    settings = Settings(
        database_url=SecretStr(database_url),
        mcp_config=file,
        model=("nobody:model",),
        providers=NO_MODEL,
        limits=Limits(tool_result_chars=tool_result_chars),
    )
    file.write_text(json.dumps({"mcpServers": {"effects": effects.as_server(**options)}}))
    async with (
        open_services(settings, Database(database_url, database_url)) as services,
        open_worker_runtime(settings, services) as runtime,
        running_worker(runtime.worker),
    ):
        tools = replace(services.tools, gateway=runtime.gateway if with_sessions else None)
        async with served_api(settings, replace(services, tools=tools)) as served:
            yield Office(served.url, served.client, services, effects)


@pytest.mark.parametrize("tool", ["read_it", "charge"])
async def test_error_of_a_tool_is_returned_and_its_call_made_once(database_url: str, tmp_path: Path, tool: str) -> None:
    async with open_office(database_url, tmp_path, with_sessions=True) as office:
        made = await office.execute(tool, arguments={"what": "a", "answer": "fail"})

        assert (made["status"], made["output"]) == ("error", f"{tool} a went wrong")
        assert len(office.effects.lines("arrived")) == 1


async def test_repeated_request_finds_its_call_after_the_server_was_removed(database_url: str, tmp_path: Path) -> None:
    async with open_office(database_url, tmp_path) as office:
        headers = {"Idempotency-Key": "order-4"}
        first = await office.execute("charge", arguments={"what": "a"}, headers=headers)
        await office.services.registry.remove("effects", Actor.local("test"))
        again = await office.execute("charge", arguments={"what": "a"}, headers=headers)
        await office.execute("charge", 404, arguments={"what": "b"})

        assert (again["status"], again["run_id"]) == ("success", first["run_id"])


async def test_result_without_its_promised_form_is_in_doubt_since_the_call_was_made(
    database_url: str, tmp_path: Path
) -> None:
    async with open_office(database_url, tmp_path) as office:
        made = await office.execute("invoice", arguments={"what": "a"})
        right = await office.execute("invoice", arguments={"what": "b", "answer": "number"})

        assert made["status"] == "in_doubt"
        assert (right["status"], right["output"]) == ("success", {"number": 4711})


async def test_binary_result_of_a_read_is_kept_by_a_run(database_url: str, tmp_path: Path) -> None:
    async with open_office(database_url, tmp_path, with_sessions=True) as office:
        made = await office.execute("read_it", arguments={"what": "a", "answer": "image"})
        kept = (await office.get(f"/v1/runs/{made['run_id']}/artifacts"))["artifacts"]

        assert (made["status"], [one["media_type"] for one in kept]) == ("success", ["image/png"])
        assert kept[0]["id"] in made["output"]


async def test_single_call_is_not_forked(database_url: str, tmp_path: Path) -> None:
    async with open_office(database_url, tmp_path) as office:
        made = await office.execute("charge", arguments={"what": "a"})
        refused = await office.post(f"/v1/runs/{made['run_id']}/fork", 409, json={"at": "start"})

        assert refused["code"] == "not_forkable"
