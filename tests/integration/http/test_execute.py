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
from starling.core.ids import new_id
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


@pytest.mark.parametrize("with_sessions", [True, False])
async def test_read_is_a_run_only_where_the_process_has_no_sessions(
    database_url: str, tmp_path: Path, *, with_sessions: bool
) -> None:
    async with open_office(database_url, tmp_path, with_sessions=with_sessions) as office:
        made = await office.execute("read_it", arguments={"what": "a"})

        assert (made["status"], made["output"]) == ("success", "read_it a: fine")
        assert made["execution_time_ms"] > 0
        assert (made["run_id"] is None) == with_sessions


async def test_call_that_changes_something_is_a_run_without_a_model_on_an_unlisted_thread(
    database_url: str, tmp_path: Path
) -> None:
    async with open_office(database_url, tmp_path, with_sessions=True) as office:
        made = await office.execute("charge", arguments={"what": "a"})
        run = await office.get(f"/v1/runs/{made['run_id']}?include=tasks,calls")

        assert (made["status"], made["output"]) == ("success", "charge a: fine")
        usage = run["result"]["usage"]
        assert (run["status"], usage["model_calls"], usage["tool_calls"]) == ("succeeded", 0, 1)
        assert [one["state"] for one in (await office.get(f"/v1/runs/{made['run_id']}/calls"))["calls"]] == [
            "succeeded"
        ]
        assert (await office.get("/v1/threads"))["threads"] == []
        assert (await office.get("/v1/skills"))["skills"] == []
        assert office.effects.done() == ["charge a"]


async def test_repeated_request_with_its_key_returns_the_same_call(database_url: str, tmp_path: Path) -> None:
    async with open_office(database_url, tmp_path) as office:
        headers = {"Idempotency-Key": "order-1"}
        first = await office.execute("charge", arguments={"what": "a"}, headers=headers)
        again = await office.execute("charge", arguments={"what": "a"}, headers=headers)
        await office.execute("charge", 422, arguments={"what": "b"}, headers=headers)

        assert [again[name] for name in ("status", "output", "run_id")] == [
            first[name] for name in ("status", "output", "run_id")
        ]
        assert office.effects.done() == ["charge a"]


@pytest.mark.parametrize("tool", ["read_it", "charge"])
async def test_error_of_a_tool_is_returned_and_its_call_made_once(database_url: str, tmp_path: Path, tool: str) -> None:
    async with open_office(database_url, tmp_path, with_sessions=True) as office:
        made = await office.execute(tool, arguments={"what": "a", "answer": "fail"})

        assert (made["status"], made["output"]) == ("error", f"{tool} a went wrong")
        assert len(office.effects.lines("arrived")) == 1


async def test_call_waits_for_its_approval_and_is_made_once_it_is_given(database_url: str, tmp_path: Path) -> None:
    async with open_office(database_url, tmp_path, approval="unsafe") as office:
        headers = {"Idempotency-Key": "order-2"}
        waits = await office.execute("charge", arguments={"what": "a"}, headers=headers)
        asked = (await office.get("/v1/approvals"))["interrupts"][0]
        effects_before = office.effects.done()
        answer = {"interruptId": asked["id"], "status": "resolved", "payload": {"approved": True}}
        await office.post(f"/v1/runs/{waits['run_id']}/resume", 202, json=[answer])
        made = await office.execute("charge", arguments={"what": "a"}, headers=headers)

        assert (waits["status"], waits["output"], effects_before) == ("waiting", None, [])
        assert asked["call"]["args"] == {"what": "a"}
        assert (made["status"], made["run_id"], office.effects.done()) == ("success", waits["run_id"], ["charge a"])


async def test_read_that_needs_approval_is_a_run_in_which_a_person_is_asked(database_url: str, tmp_path: Path) -> None:
    async with open_office(database_url, tmp_path, with_sessions=True, approval="always") as office:
        made = await office.execute("read_it", arguments={"what": "a"})

        assert made["status"] == "waiting"
        assert made["run_id"] is not None


async def test_call_that_may_have_been_done_is_in_doubt(database_url: str, tmp_path: Path) -> None:
    async with open_office(database_url, tmp_path, timeout=1) as office:
        arguments = {"what": "a", "stall": "after", "gate": "never"}
        made = await office.execute("charge", arguments=arguments)
        asked = (await office.get("/v1/approvals"))["interrupts"]
        office.effects.open("never")

        assert (made["status"], office.effects.done()) == ("in_doubt", ["charge a"])
        assert [one["kind"] for one in asked] == ["in_doubt"]


async def test_call_goes_on_when_its_caller_waits_no_longer(database_url: str, tmp_path: Path) -> None:
    async with open_office(database_url, tmp_path) as office:
        arguments, headers = {"what": "a", "stall": "after", "gate": "gate"}, {"Idempotency-Key": "order-3"}
        waits = await office.execute("charge", arguments=arguments, timeout=0.5, headers=headers)
        office.effects.open("gate")
        made = await office.execute("charge", arguments=arguments, timeout=60, headers=headers)

        assert (waits["status"], made["status"], made["run_id"]) == ("waiting", "success", waits["run_id"])
        assert office.effects.done() == ["charge a"]


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


async def test_whole_of_a_long_result_is_an_artifact_of_the_run_also_of_a_read(
    database_url: str, tmp_path: Path
) -> None:
    async with open_office(database_url, tmp_path, with_sessions=True, tool_result_chars=400) as office:
        made = await office.execute("read_it", arguments={"what": "a", "answer": "long"})
        whole = await office.client.get(f"/v1/runs/{made['run_id']}/artifacts/{made['artifact']}")

        assert made["status"] == "success"
        assert len(made["output"]) <= 400
        assert await whole.text() == f"read_it a: {'fine ' * 200}"


async def test_binary_result_of_a_read_is_kept_by_a_run(database_url: str, tmp_path: Path) -> None:
    async with open_office(database_url, tmp_path, with_sessions=True) as office:
        made = await office.execute("read_it", arguments={"what": "a", "answer": "image"})
        kept = (await office.get(f"/v1/runs/{made['run_id']}/artifacts"))["artifacts"]

        assert (made["status"], [one["media_type"] for one in kept]) == ("success", ["image/png"])
        assert kept[0]["id"] in made["output"]


async def test_unknown_tool_wrong_arguments_and_unsendable_text_are_refused(database_url: str, tmp_path: Path) -> None:
    async with open_office(database_url, tmp_path, with_sessions=True) as office:
        missing = await office.execute("nothing", 404)
        nul = await office.execute("read_it", 422, arguments={"what": "a\0b"})
        wrong = await office.execute("read_it", arguments={"that": "a"})

        assert "GET /tools" in missing["remedy"]
        assert "can't be sent" in nul["detail"]
        assert (wrong["status"], office.effects.lines("arrived")) == ("error", [])


async def test_key_of_a_service_calls_tools_within_its_grant_and_nothing_else(
    database_url: str, tmp_path: Path
) -> None:
    async with open_office(database_url, tmp_path, with_sessions=True) as office:
        service = await office.key(Scope.SERVICE, grant=Grant(tools=frozenset({"effects.read_it"})))
        teams = await office.key(Scope.TEAMS)

        assert (await office.execute("read_it", arguments={"what": "a"}, headers=service))["status"] == "success"
        assert [one["name"] for one in (await office.get("/tools", headers=service))["tools"]] == ["effects.read_it"]
        await office.execute("charge", 404, arguments={"what": "a"}, headers=service)
        await office.get("/v1/runs", 403, headers=service)
        await office.execute("read_it", 403, arguments={"what": "a"}, headers=teams)


async def test_call_of_another_tenant_is_not_found(database_url: str, tmp_path: Path) -> None:
    async with open_office(database_url, tmp_path) as office:
        made = await office.execute("charge", arguments={"what": "a"})
        other = await office.key(Scope.RUN, tenant="other")

        await office.get(f"/v1/runs/{made['run_id']}", 404, headers=other)


@pytest.mark.parametrize("tool", ["read_it", "charge"])
async def test_server_that_is_switched_off_is_not_called(database_url: str, tmp_path: Path, tool: str) -> None:
    async with open_office(database_url, tmp_path, with_sessions=True) as office:
        switch = {"kind": "server", "name": "effects", "reason": "It is being repaired."}
        await office.put("/v1/switches", json=switch)
        made = await office.execute(tool, arguments={"what": new_id()})

        assert made["status"] == "error"
        assert "It is being repaired." in made["output"]
        assert office.effects.lines("arrived") == []


async def test_single_call_is_not_forked(database_url: str, tmp_path: Path) -> None:
    async with open_office(database_url, tmp_path) as office:
        made = await office.execute("charge", arguments={"what": "a"})
        refused = await office.post(f"/v1/runs/{made['run_id']}/fork", 409, json={"at": "start"})

        assert refused["code"] == "not_forkable"
