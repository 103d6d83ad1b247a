"""The metrics route: metrics of the process and of the database, without threads, runs and tenants as labels."""

import asyncio
import re
from importlib.metadata import version

import pytest
from prometheus_client.parser import text_string_to_metric_families

from starling.app.access import keys
from starling.app.access.keys import KeySpec
from starling.app.http import authentication
from starling.app.runs.acceptance import RunRequest
from starling.app.telemetry import metrics
from starling.app.telemetry.build_info import build_info
from starling.core.principal import HOST_ADMIN, Scope
from starling.infra.postgres.audit import Actor
from tests.integration.http.conftest import LiveApi
from tests.integration.http.test_event_streams import Quiet, a_quiet_api
from tests.support.platform import CALLER
from tests.support.tcp_proxy import proxied

pytestmark = pytest.mark.asyncio(loop_scope="module")

type Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def collected(api: LiveApi | Quiet) -> Samples:
    async with api.client.get("/metrics") as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/plain; version=")
        text = await response.text()
    families = text_string_to_metric_families(text)
    return {(item.name, frozenset(item.labels.items())): item.value for each in families for item in each.samples}


def value(samples: Samples, name: str, **labels: str) -> float:
    """Return the sum of the samples of a name that have these labels."""
    wanted = labels.items()
    return sum(number for (found, having), number in samples.items() if found == name and wanted <= having)


async def test_run_is_counted_with_its_calls_tokens_and_flushes(api: LiveApi) -> None:
    before = await collected(api)
    await api.ask("How full is the disk?")
    after = await collected(api)

    def grown(name: str, **labels: str) -> float:
        return value(after, name, **labels) - value(before, name, **labels)

    assert grown("starling_runs_ended_total", status="succeeded") == 1
    assert grown("starling_run_seconds_count", status="succeeded") == 1
    assert grown("starling_model_calls_total", outcome="ok", model="offline:rules") >= 2
    assert grown("starling_tool_calls_total", server="system_health", outcome="succeeded") == 1
    assert grown("starling_tool_call_seconds_count", server="system_health") == 1
    assert grown("starling_verdicts_total", agent="mcp_agent_system_health", status="APPROVED") == 1
    assert grown("starling_flush_seconds_count") >= 2
    assert grown("starling_http_requests_total", route="/v1/agent/run", status="200") == 1
    assert value(after, "starling_sessions_open") >= 1
    assert value(after, "starling_streams_open") == 0


async def test_run_whose_answer_lacks_a_part_is_counted_by_the_reason(api: LiveApi) -> None:
    before = await collected(api)
    await api.ask("How full is the disk? Book a flight to Lima.")
    after = await collected(api)

    name = "starling_runs_degraded_total"
    assert value(after, name, reason="unserved") - value(before, name, reason="unserved") == 1


async def test_runs_cancelled_or_replaced_by_the_api_are_counted(database_url: str) -> None:
    newer = RunRequest(input="Hi.", thread_id="interrupted", policy="interrupt")
    async with a_quiet_api(database_url) as api:
        key = await api.accept()
        assert (await api.post(f"/v1/runs/{key.id}/cancel", json={}))["status"] == "cancelled"
        by_hand = value(await collected(api), "starling_runs_ended_total", status="cancelled")
        for _ in range(3):
            await api.services.runs.acceptance.accept(CALLER, newer)
        after = value(await collected(api), "starling_runs_ended_total", status="cancelled")

    assert (by_hand, after) == (1, 3)  # each request that interrupts ends the one before it


async def test_metrics_show_build_connection_epoch_and_runs_by_status(api: LiveApi) -> None:
    samples = await collected(api)

    assert value(samples, "starling_build_info", version=version("starling-swarm"), commit=build_info().commit) == 1
    assert value(samples, "starling_database_up") == 1
    assert value(samples, "starling_epoch") == await api.services.storage.epochs.active_number()
    assert {dict(having)["status"] for name, having in samples if name == "starling_runs"} == {
        "queued",
        "running",
        "waiting",
    }


async def test_metric_labels_hold_no_id_and_no_text_of_a_caller(api: LiveApi) -> None:
    await api.ask("Hello", thread_id="thread-canary")
    await api.get("/canary/path", status=404)
    async with api.client.request("CANARY", "/health") as response:
        assert response.status in (400, 405)  # a parser that knows all methods refuses it before the application
    text = str(await collected(api)).lower()

    assert "canary" not in text
    assert not re.search(r"[0-9a-f]{8}-[0-9a-f]{4}-7", text)


async def test_silent_postgres_delays_metrics_for_a_known_key_by_two_seconds_at_most(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "_CACHE_SECONDS", 0.0)
    async with proxied(database_url) as database, a_quiet_api(database.url) as api:
        storage = api.services.storage
        spec = KeySpec("prometheus", "default", frozenset({Scope.ADMIN}))
        _, key = await storage.keys.create(HOST_ADMIN, spec, Actor.local("test"))
        headers = {"Authorization": f"Bearer {key}"}
        async with api.client.get("/metrics", headers=headers) as response:
            assert "starling_database_up 1.0" in await response.text()
        storage.metrics._read = float("-inf")  # pyright: ignore[reportPrivateUsage] - as after five seconds

        database.proxy.freeze()
        async with asyncio.timeout(4), api.client.get("/metrics", headers=headers) as response:  # if it is busy
            text = await response.text()
        database.proxy.thaw()
        late = {
            task for task in asyncio.all_tasks() if task.get_name() in ("check-key", "read-metrics", "check-writes")
        }
        await asyncio.wait(late, timeout=60)

    assert authentication._MONITOR_SECONDS + metrics._WAIT_SECONDS < 2  # pyright: ignore[reportPrivateUsage]
    assert "starling_database_up 0.0" in text
    assert 'starling_runs{status="queued"}' in text
