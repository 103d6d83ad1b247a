"""Findings and remedies of the doctor command."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import encode_basic_auth, web
from pydantic import SecretStr

from mcp_gateway.sessions import isolation
from mcp_gateway.sessions.isolation import MachineIsolation
from starling.app.doctor import database, machine, mcp_servers
from starling.app.doctor.runner import run_checks
from starling.core.diagnostics import Diagnostic
from starling.core.settings.schema import ProviderSettings, Settings
from tests.support import http_server
from tests.support.command_line import new_workspace
from tests.support.gateway_harness import SERVERS, free_port
from tests.support.model_script import Answer, Body
from tests.support.model_server import ModelServer

WELL = {"command": sys.executable, "args": [str(SERVERS / "misbehaving.py"), "well"]}
MISSING = {"command": "no-such-program"}
NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def says_ok(_: Body) -> Answer:
    return Answer("ok")


async def refuses(_: Body) -> Answer:
    return Answer(status=401, body='{"error": {"message": "who are you?"}}')


def settings(database_url: str, folder: Path, model: ModelServer, servers: Mapping[str, Any], **more: Any) -> Settings:
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    return Settings(
        database_url=SecretStr(database_url),
        mcp_config=file,
        model=("scripted:small",),
        providers={"scripted": ProviderSettings(base_url=model.url)},
        **more,
    )


async def found(given: Settings) -> dict[str, Diagnostic]:
    return {finding.subject: finding for finding in await run_checks(given)}


@asynccontextmanager
async def collector(status: int) -> AsyncGenerator[str]:
    """Give the address of somebody who answers everything with a status."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with served(app) as url:
        yield url


@asynccontextmanager
async def served(app: web.Application) -> AsyncGenerator[str]:
    runner = web.AppRunner(app)
    listening = await http_server.start(runner)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        await http_server.stop(runner, listening)


async def test_doctor_reports_what_it_checked_when_all_is_well(database_url: str, tmp_path: Path) -> None:
    async with ModelServer(says_ok) as model, collector(200) as url:
        given = settings(database_url, tmp_path, model, {"well": WELL}, otlp_endpoint=url, context_service_url=url)
        findings = await found(given.model_copy(update={"brainstem_url": url}))

    assert {finding.state for finding in findings.values()} == {"ok"}
    assert {"python", "postgres", "clock", "traces", "context service", "brainstem", "server well"} <= findings.keys()
    assert "with pgvector 0." in findings["postgres"].message
    assert "scripted:small answered in" in findings["model coding"].message
    assert findings["server well"].message == "It lists 1 tool."
    assert "static made a vector of 256 numbers" in findings["embeddings"].message


async def test_doctor_asks_the_model_of_supervisors_where_one_is_set(database_url: str, tmp_path: Path) -> None:
    async with ModelServer(says_ok) as model:
        given = settings(database_url, tmp_path, model, {}, model_supervisor=("scripted:planner",))
        findings = await found(given)

    assert "scripted:planner answered in" in findings["model supervisor"].message
    assert "scripted:small answered in" in findings["model reasoning"].message


async def test_doctor_names_each_fault_with_a_remedy(database_url: str, tmp_path: Path) -> None:
    nobody = f"http://user:canary@127.0.0.1:{free_port()}"
    async with ModelServer(refuses) as model, collector(401) as url:
        given = settings(
            database_url, tmp_path, model, {"gone": MISSING}, otlp_endpoint=url, context_service_url=nobody,
            embeddings="ollama:none", ollama_base_url=f"http://127.0.0.1:{free_port()}",
        )  # fmt: skip
        findings = await found(given)

    wrong = {subject: finding for subject, finding in findings.items() if finding.state != "ok"}
    assert wrong.keys() == {
        "model router", "model reasoning", "model coding", "server gone", "traces", "context service", "embeddings",
    }  # fmt: skip
    assert wrong["traces"].state == wrong["embeddings"].state == "warning"
    assert "agents are found by words only" in wrong["embeddings"].message
    assert "who are you?" in wrong["model router"].message
    assert "'no-such-program' was not found" in wrong["server gone"].message
    assert all(finding.remedy for finding in wrong.values())
    assert "canary" not in str(findings)


@pytest.mark.parametrize("address", ["nowhere at all", "http://[", "ftp://user:canary@host/x"])
async def test_invalid_address_is_a_finding(database_url: str, tmp_path: Path, address: str) -> None:
    async with ModelServer(says_ok) as model:
        given = settings(
            database_url, tmp_path, model, {"well": WELL}, otlp_endpoint=address, context_service_url=address
        )
        findings = await found(given)

    wrong = {finding.subject for finding in findings.values() if finding.state == "problem"}
    assert wrong == {"traces", "context service"}
    assert "canary" not in str(findings)


async def test_langfuse_keys_are_checked_at_langfuse(database_url: str, tmp_path: Path) -> None:
    async with ModelServer(says_ok) as model, langfuse("pk-right", "sk-right") as url:
        states = [
            (await found(settings(database_url, tmp_path, model, {}, langfuse_host=url, **keys)))["traces"].state
            for keys in (langfuse_keys("pk-right", "sk-right"), langfuse_keys("pk-right", "sk-canary"))
        ]

    assert states == ["ok", "warning"]


async def test_configured_tool_that_the_server_lacks_is_a_warning(database_url: str, tmp_path: Path) -> None:
    misnamed = WELL | {"x-starling": {"tools": {"atc": {"approval": "always"}}}}
    async with ModelServer(says_ok) as model:
        findings = await found(settings(database_url, tmp_path, model, {"well": misnamed}))

    assert findings["server well"].state == "warning"
    assert "doesn't have: atc" in findings["server well"].message


async def test_single_langfuse_key_is_a_warning(database_url: str, tmp_path: Path) -> None:
    async with ModelServer(says_ok) as model:
        findings = await found(settings(database_url, tmp_path, model, {}, langfuse_public_key="pk"))

    assert findings["langfuse"].state == "warning"
    assert "traces" not in findings


def langfuse_keys(public: str, secret: str) -> dict[str, Any]:
    return {"langfuse_public_key": public, "langfuse_secret_key": SecretStr(secret)}


@asynccontextmanager
async def langfuse(public: str, secret: str) -> AsyncGenerator[str]:
    """Give the address of somebody who looks at keys as Langfuse does: after the method."""

    async def projects(request: web.Request) -> web.Response:
        known = request.headers["Authorization"] == encode_basic_auth(public, secret)
        return web.json_response({"data": []}, status=200 if known else 401)

    app = web.Application()
    app.router.add_get("/api/public/projects", projects)
    async with served(app) as url:
        yield url


async def test_unavailable_or_empty_database_is_a_problem(empty_database_url: str, tmp_path: Path) -> None:
    async with ModelServer(says_ok) as model:
        empty = await found(settings(empty_database_url, tmp_path, model, {}))
        away = await found(settings(f"postgresql://x@127.0.0.1:{free_port()}/x", tmp_path, model, {}))

    assert (empty["postgres"].state, empty["postgres"].remedy) == ("problem", "Run `starling db upgrade`.")
    assert away["postgres"].state == "problem"
    assert "DATABASE_URL" in away["postgres"].remedy
    assert "clock" not in away


@pytest.mark.parametrize(("seconds", "state"), [(0.1, "ok"), (-1.9, "ok"), (2.5, "problem"), (-3600, "problem")])
def test_clock_skew_of_two_seconds_or_more_is_a_problem(seconds: float, state: str) -> None:
    assert database.clock_finding(NOW, NOW + timedelta(seconds=seconds)).state == state


@pytest.mark.parametrize(("gib", "state"), [(50, "ok"), (2, "warning"), (0.5, "problem")])
def test_little_free_disk_space_is_a_finding(gib: float, state: str) -> None:
    assert machine.disk_finding(Path("/data"), int(gib * 2**30)).state == state


async def test_command_tries_the_abilities_of_the_configured_model_and_shows_no_key() -> None:
    key = "sk-0123456789abcdef0123456789abcdef"

    async def echoes(body: Body) -> Answer:
        return Answer(f"My key is {key}." if "tools" not in body else "")

    async with ModelServer(echoes) as model:
        providers = json.dumps({"local": {"base_url": model.url, "api_key": key}})
        with new_workspace(STARLING_MODEL="local:small", STARLING_PROVIDERS=providers) as workspace:
            shown = await asyncio.to_thread(workspace.starling, "doctor", "--model")
            named = await asyncio.to_thread(workspace.starling, "doctor", "--model", "local:other", "--json")

    assert shown.returncode == named.returncode == 1
    assert key not in shown.stdout + shown.stderr + named.stdout
    lines = shown.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:11]].count("works") == 3  # answers, streaming, usage
    assert "router     does not suit (the settings use it for this role); missing: native tool call, " in shown.stdout
    [report] = json.loads(named.stdout)["models"]
    assert (report["model"], len(report["abilities"]), report["suits"]) == ("local:other", 10, [])


def test_command_describes_the_offline_rules_and_refuses_a_model_without_its_option() -> None:
    with new_workspace() as workspace:
        rules = workspace.starling("doctor", "--model", "offline:rules")
        without = workspace.starling("doctor", "offline:rules")

    assert (rules.returncode, without.returncode) == (0, 2)
    assert rules.stdout.startswith("offline:rules: not a language model.")


def test_command_prints_one_line_per_finding_and_exits_by_the_worst(database_url: str) -> None:
    with new_workspace(DATABASE_URL=database_url) as workspace:
        (workspace.folder / "mcp.json").write_text(json.dumps({"mcpServers": {"well": WELL}}))
        well = workspace.starling("doctor", "--json")
        (workspace.folder / "mcp.json").write_text(json.dumps({"mcpServers": {"gone": MISSING}}))
        broken = workspace.starling("doctor")

    assert well.returncode == 0, well.stderr
    assert {item["state"] for item in json.loads(well.stdout)} == {"ok", "warning"}
    assert broken.returncode == 1
    (line,) = [line for line in broken.stdout.splitlines() if line.startswith("problem")]
    assert "server gone" in line
    assert "Install it, or give its whole path" in line


async def test_servers_that_nothing_isolates_are_a_warning_with_the_reason(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused() -> MachineIsolation:  # what the probe says where the kernel refuses it
        return MachineIsolation("none", "no Landlock: not built", "no mount namespace: Operation not permitted")

    monkeypatch.setattr(isolation, "machine_isolation", refused)

    async with ModelServer(says_ok) as model:
        found = await mcp_servers.check(settings(database_url, tmp_path, model, {"well": WELL, "other": WELL}))

    said = {one.subject: one.message for one in found if one.state == "warning"}
    assert said["isolation"].startswith("other, well can read the platform's data folder, password and token")
    assert said["isolation"].endswith("no mount namespace: Operation not permitted.")
    assert said["processes"].startswith(
        "other, well can read each other's variables, answer each other's calls and end"
    )
    assert said["processes"].endswith("and the platform: no Landlock: not built.")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process as another user")
async def test_server_that_the_servers_user_does_not_reach_is_a_warning_with_the_path(
    database_url: str, tmp_path: Path
) -> None:
    (closed := tmp_path / "closed").mkdir(mode=0o700)
    servers = {"well": WELL | {"cwd": str(closed)}}

    async with ModelServer(says_ok) as model:
        given = settings(database_url, tmp_path, model, servers, server_user="nobody", data_dir=tmp_path)
        found = await mcp_servers.check(given)

    [finding] = [one for one in found if one.subject == "isolation"]
    assert (finding.state, f"well ({closed})" in finding.message) == ("warning", True)
