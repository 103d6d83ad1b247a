"""A real Prometheus scrapes an API and a worker, and fires the shipped alerts; only their `for` is shortened."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psycopg
import pytest
import yaml

from starling.infra.postgres.schema import upgrade
from tests.e2e.test_full_disk import fill, small_disk
from tests.support.command_line import CliWorkspace, Service, new_workspace
from tests.support.gateway_harness import SERVERS, free_port
from tests.support.model_script import no_rule
from tests.support.model_server import ModelServer
from tests.support.postgres_faults import frozen
from tests.support.postgres_servers import DATABASE, PostgresServer, running

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(
        not (shutil.which("prometheus") and shutil.which("promtool")),
        reason="Prometheus is missing: `apt-get install prometheus`",
    ),
]
DEPLOY = Path(__file__).parents[2] / "deploy" / "prometheus"
_SECONDS = 120
_OLD_QUESTION = """
INSERT INTO interrupts (tenant, id, run_id, key, kind, path, reason, message, response_schema, created_at)
VALUES ('default', gen_random_uuid(), gen_random_uuid(), 'k', 'clarification', '', 'why', 'Which one?', '{}',
        now() - interval '2 days')"""


@dataclass(frozen=True)
class Prometheus:
    """A Prometheus that answers at `url`."""

    url: str

    async def until_true(self, query: str) -> None:
        """Return once an expression has a result."""
        async with asyncio.timeout(_SECONDS), aiohttp.ClientSession(self.url) as client:
            while True:
                async with client.get("/api/v1/query", params={"query": query}) as response:
                    if (await response.json())["data"]["result"]:
                        return
                await asyncio.sleep(0.5)

    async def firing(self) -> set[str]:
        """Return the names of the alerts that fire now."""
        async with aiohttp.ClientSession(self.url) as client, client.get("/api/v1/alerts") as response:
            found = (await response.json())["data"]["alerts"]
        return {alert["labels"]["alertname"] for alert in found if alert["state"] == "firing"}

    async def until(self, *alerts: str) -> None:
        """Return once these fire."""
        async with asyncio.timeout(_SECONDS):
            while not await self.firing() >= set(alerts):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.5)

    async def until_silent(self, *alerts: str) -> None:
        """Return once none of these fires; without a name, none at all."""
        async with asyncio.timeout(_SECONDS):
            while (now := await self.firing()) and (not alerts or now & {*alerts}):  # noqa: ASYNC110 - likewise
                await asyncio.sleep(0.5)


@dataclass(frozen=True)
class Watched:
    """An API, and what Prometheus says of it and of a worker of its workspace."""

    alerts: Prometheus
    workspace: CliWorkspace
    api: Service

    async def post(self, path: str, body: Any) -> None:
        async with (
            aiohttp.ClientSession(self.api.url, headers=self.workspace.admin_headers) as client,
            client.post(path, json=body) as response,
        ):
            assert response.status < 300, await response.text()

    async def keep_calling(self, tool: str) -> None:
        while True:
            await self.post("/execute", {"tool_name": tool})


@asynccontextmanager
async def prometheus(folder: Path, workspace: CliWorkspace, **targets: str) -> AsyncGenerator[Prometheus]:
    """Have a Prometheus scrape these jobs each second, with the rules and the credentials of a deployment."""
    rules = yaml.safe_load((DEPLOY / "alerts.yaml").read_text("utf-8"))
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        rule["for"] = "2s"
    (folder / "alerts.yaml").write_text(yaml.safe_dump(rules))
    token = workspace.admin_headers["Authorization"].removeprefix("Bearer ")
    jobs: list[dict[str, Any]] = [
        {
            "job_name": f"starling-{job}",
            "authorization": {"credentials": token},
            "static_configs": [{"targets": [url.removeprefix("http://")]}],
        }
        for job, url in targets.items()
    ]
    every = {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"}
    config = {"global": every, "rule_files": [str(folder / "alerts.yaml")], "scrape_configs": jobs}
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    options = {"config.file": folder / "prometheus.yaml", "storage.tsdb.path": folder / "tsdb"}
    command = ["prometheus", *(f"--{name}={value}" for name, value in options.items())]
    with subprocess.Popen([*command, f"--web.listen-address={address}"], stderr=subprocess.DEVNULL) as process:
        try:
            await _answered(f"http://{address}/-/ready")
            yield Prometheus(f"http://{address}")
        finally:
            process.terminate()


async def _answered(url: str) -> None:
    async with asyncio.timeout(_SECONDS), aiohttp.ClientSession() as client:
        while True:
            try:
                async with client.get(url) as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientConnectionError:
                pass
            await asyncio.sleep(0.2)


def test_shipped_rules_are_accepted_by_promtool() -> None:
    checked = subprocess.run(
        ["promtool", "check", "rules", DEPLOY / "alerts.yaml"], check=False, capture_output=True, text=True
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr


@asynccontextmanager
async def watched(folder: Path, **variables: str) -> AsyncGenerator[Watched]:
    """Start an API and a Prometheus that scrapes it and a worker, which is to be started."""
    port = free_port()
    with (
        new_workspace(**variables, STARLING_WORKER_PORT=str(port)) as workspace,
        workspace.running("serve", "--port", "0") as api,
    ):
        async with prometheus(folder, workspace, api=api.url, worker=f"http://127.0.0.1:{port}") as seen:
            yield Watched(seen, workspace, api)


async def test_full_and_silent_postgres_fire_the_alert_that_ends_with_them(tmp_path: Path) -> None:
    with small_disk() as disk, running(server := PostgresServer(disk / "pg")):
        server.initialise().start()
        server.execute(f"CREATE DATABASE {DATABASE}")
        await upgrade(server.url())
        async with watched(tmp_path, DATABASE_URL=server.url()) as platform:
            with platform.workspace.running("worker"):
                await platform.alerts.until_silent()

                filler = fill(disk)
                await platform.alerts.until("StarlingDatabaseUnavailable")
                filler.unlink()
                await platform.alerts.until_silent()

                with frozen(server.pid):
                    await platform.alerts.until("StarlingDatabaseUnavailable")
                await platform.alerts.until_silent()


async def test_lost_processes_waiting_runs_and_old_questions_fire_their_alerts(
    tmp_path: Path, database_url: str
) -> None:
    async with watched(tmp_path, DATABASE_URL=database_url) as platform:
        for _ in range(4):
            with platform.workspace.running("worker"):
                await platform.alerts.until_true('up{job="starling-worker"} == 1')
            await platform.alerts.until_true('up{job="starling-worker"} == 0')
        await platform.alerts.until("StarlingNoWorker", "StarlingProcessMissing", "StarlingProcessRestarts")
        await platform.post("/v1/runs", {"input": "Hello", "thread_id": "t"})
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute("UPDATE runs SET admitted_at = now() - interval '1 minute'")
            connection.execute(_OLD_QUESTION)

        await platform.alerts.until("StarlingQueueWaits", "StarlingInterruptsOld")

        with platform.workspace.running("worker"):
            await platform.alerts.until_silent("StarlingNoWorker", "StarlingProcessMissing", "StarlingQueueWaits")
            platform.api.process.terminate()
            await platform.alerts.until("StarlingNoApi")


async def test_model_that_refuses_requests_fires_its_alert_and_that_of_runs(tmp_path: Path, database_url: str) -> None:
    async with (
        ModelServer(no_rule) as model,
        watched(tmp_path, DATABASE_URL=database_url, **model.variables) as platform,
    ):
        with platform.workspace.running("worker"):
            await platform.post("/v1/runs", {"input": "Hello", "thread_id": "one"})
            await platform.alerts.until_true("starling_model_calls_total")
            await platform.post("/v1/runs", {"input": "Hello", "thread_id": "two"})  # a rate is of two values

            await platform.alerts.until("StarlingModelFails", "StarlingRunsFail")


@pytest.mark.parametrize(
    ("fault", "alerts"),
    [("dying", ["StarlingServerUnavailable", "StarlingBreakerOpen"]), ("dying-often", ["StarlingServerCrashes"])],
)
async def test_server_that_ends_in_calls_fires_its_alerts(
    tmp_path: Path, database_url: str, fault: str, alerts: list[str]
) -> None:
    command = [sys.executable, str(SERVERS / "misbehaving.py"), fault, str(tmp_path / "record")]
    server = {"command": command[0], "args": command[1:], "x-starling": {"effect": "read"}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"crashing": server}}))
    variables = {"DATABASE_URL": database_url, "STARLING_MCP_CONFIG": str(tmp_path / "mcp.json")}
    async with watched(tmp_path, **variables) as platform:
        with platform.workspace.running("worker"):
            asking = asyncio.get_running_loop().create_task(platform.keep_calling("crashing.act"))
            await platform.alerts.until(*alerts)
            asking.cancel()
