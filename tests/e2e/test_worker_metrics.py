"""Metrics of a worker process."""

import json

import aiohttp
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.support.command_line import new_workspace
from tests.support.documented_commands import ROOT
from tests.support.promql import uses


def asked_by_alerts_and_dashboard() -> set[str]:
    """Return the names of all metrics in deploy/, without the one that Prometheus makes."""
    groups = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text("utf-8"))["groups"]
    dashboard = json.loads((ROOT / "deploy/grafana/dashboard.json").read_text("utf-8"))
    rules = [rule["expr"] for group in groups for rule in group["rules"]]
    panels = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return {use.metric for expression in rules + panels for use in uses(expression)} - {"up"}


def families(text: str) -> set[str]:
    return {family.name for family in text_string_to_metric_families(text)}


async def test_worker_serves_metrics_of_its_runs(database_url: str) -> None:
    with (
        new_workspace(DATABASE_URL=database_url, STARLING_WORKER_PORT="0") as workspace,
        workspace.running("serve", "--port", "0") as api,
        workspace.running("worker") as worker,
    ):
        asked = workspace.starling("ask", "Hello", "--url", api.url)
        async with aiohttp.ClientSession(worker.url, headers=workspace.admin_headers) as client:
            async with client.get("/metrics") as response:
                metrics = await response.text()
            async with client.get(f"{api.url}/metrics") as response:
                metrics_of_api = await response.text()
            async with client.get("/health") as response:
                health = response.status

    assert asked.returncode == 0, asked.stderr
    assert 'starling_runs_ended_total{status="succeeded"} 1.0' in metrics
    assert health == 200
    for text in (metrics, metrics_of_api):
        ends = ("_total", "_bucket")
        names = families(text) | {f"{name}{end}" for name in families(text) for end in ends}
        assert asked_by_alerts_and_dashboard() <= names
