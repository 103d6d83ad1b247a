"""Alerts, scrape configuration and dashboard: what they ask for exists, and what they say leads somewhere."""

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import promql_parser as promql
import pytest
import yaml

from starling.app.http.routes import health, metrics
from starling.app.telemetry.metrics import Metrics
from starling.core import errors
from starling.core.errors import StarlingError
from starling.core.run_status import RunStatus
from tests.support.command_syntax import parse_command
from tests.support.promql import Use, result_labels, uses

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
ALERTS: list[dict[str, Any]] = yaml.safe_load((DEPLOY / "prometheus/alerts.yaml").read_text("utf-8"))["groups"][0][
    "rules"
]
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana/dashboard.json").read_text("utf-8"))
SCRAPE: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus/prometheus.yaml").read_text("utf-8"))
EXPRESSIONS = [rule["expr"] for rule in ALERTS] + [
    target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]
]
OF_TARGET = frozenset({"job", "instance"})  # labels that Prometheus adds
# What Prometheus scrapes of each alert's series: an hour in which all is well, then one with the fault.
FAULTS: dict[str, dict[str, str]] = {
    "DatabaseUnavailable": {"starling_database_up": "1x60 0x60"},
    "ProcessMissing": {'up{job="starling-worker",instance="w"}': "1x60 0x60"},
    "NoApi": {'up{job="starling-api"}': "1x60 0x60"},
    "NoWorker": {'up{job="starling-worker"}': "1x60 stale"},
    "ProcessRestarts": {'process_start_time_seconds{job="starling-api",instance="a"}': "7x60 8+1x60"},
    "QueueWaits": {"starling_oldest_queued_seconds": "30x60 31x60"},
    "InterruptsOld": {
        'starling_open_interrupts{age="day"}': "9x120",
        'starling_open_interrupts{age="week"}': "0x60 1x60",
    },
    "RunsParked": {'starling_runs_ended_total{status="parked"}': "0x60 1+1x60"},
    "RunsFail": {
        'starling_runs_ended_total{status="failed"}': "0+1x60 60+3x60",
        'starling_runs_ended_total{status="succeeded"}': "0+10x120",
    },
    "ServerUnavailable": {
        'starling_tool_calls_total{server="s",outcome="server_unavailable"}': "0+2x60 120+3x60",
        'starling_tool_calls_total{server="s",outcome="ok"}': "0+9x120",
    },
    "BreakerOpen": {'starling_server_breakers_open{server="s"}': "0x60 1x60"},
    "ServerCrashes": {'starling_server_failures_total{server="s"}': "0x60 1+1x60"},
    "ModelFails": {
        'starling_model_calls_total{model="m",outcome="llm_server_error"}': "0+1x60 60+3x60",
        'starling_model_calls_total{model="m",outcome="ok"}': "0+10x120",
        'starling_model_calls_total{model="m",outcome="cancelled"}': "0+10x120",
    },
    "ApiFails": {
        'starling_http_requests_total{route="/v1/runs",status="503"}': "0x60 0+1x60",
        'starling_http_requests_total{route="/v1/runs",status="200"}': "0+10x120",
        'starling_http_requests_total{route="/ready",status="503"}': "0+99x120",
    },
    "FlushesSlow": {
        'starling_flush_seconds_bucket{le="0.25"}': "0+100x60 6000+98x60",
        'starling_flush_seconds_bucket{le="1"}': "0+100x120",
        'starling_flush_seconds_bucket{le="+Inf"}': "0+100x120",
    },
    "EpochBehind": {
        "starling_epoch": "7x60 8x60",
        'starling_known_epoch{instance="w"}': "7x120",
        'starling_known_epoch{instance="v"}': "7x60 8x60",
        'starling_known_epoch{instance="a"}': "0x120",
    },
    "FilesNearlyUsedUp": {'process_open_fds{instance="a"}': "80x60 81x60", 'process_max_fds{instance="a"}': "100x120"},
}
UNFINISHED = {status.value for status in RunStatus if not status.terminal}


def series() -> Mapping[str, frozenset[str]]:
    """Return the labels of each time series that a process exports, by name."""
    found: dict[str, frozenset[str]] = {"up": frozenset()}
    exported = Metrics()
    for instrument in vars(exported).values():
        if hasattr(instrument, "_labelnames"):
            names = frozenset(instrument._labelnames)
            for family in instrument.describe():
                kinds = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}.get(family.type, ("",))
                found |= {f"{family.name}{kind}": names | ({"le"} if kind == "_bucket" else set()) for kind in kinds}
    for family in exported.registry.collect():
        if family.name.startswith("process_"):
            found |= {sample.name: frozenset() for sample in family.samples}
    return found


def error_codes() -> set[str]:
    kinds = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, StarlingError)]
    return {kind.code for kind in kinds}


def values_of(use: Use, label: str) -> set[str]:
    """Return the values that a label may have, empty where they are names of somebody's models or servers."""
    if label == "status":
        return UNFINISHED if use.metric == "starling_runs" else {status.value for status in RunStatus} | {"5.."}
    if label == "age":
        return {"hour", "day", "week", "older"}
    if label == "route":
        return {str(getattr(route, "path", "")) for router in (health, metrics) for route in router.router.routes}
    return error_codes() | {"ok", "succeeded"} if label == "outcome" else set()


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expression_asks_for_metrics_labels_and_values_that_exist(expression: str) -> None:
    exported = series()

    found = uses(expression)

    assert found
    for use in found:
        assert use.metric in exported
        assert use.labels <= exported[use.metric] | OF_TARGET
        for label, values in use.matched.items():
            assert label in OF_TARGET or set(values) <= values_of(use, label), f"{label}: {values}"


@pytest.mark.parametrize(
    "expression",
    [
        "sum(rate(starling_runs_endet_total[5m]))",
        'sum(rate(starling_tool_calls_total{outcome="server_unavailble"}[5m]))',
        'sum(rate(starling_http_requests_total{route!~"/healthy"}[5m]))',
    ],
)
def test_expression_with_a_misspelt_name_is_found(expression: str) -> None:
    with pytest.raises(AssertionError):
        test_expression_asks_for_metrics_labels_and_values_that_exist(expression)


@pytest.mark.parametrize("file", ["prometheus.yaml", "kubernetes.yaml", "alerts.yaml"])
def test_file_of_prometheus_is_valid_by_its_published_schema(file: str) -> None:
    name = "prometheus.rules.json" if file == "alerts.yaml" else "prometheus.json"
    schema = json.loads((ROOT / "tests/data/deploy_schemas" / name).read_text("utf-8"))
    document = yaml.safe_load((DEPLOY / "prometheus" / file).read_text("utf-8"))
    validator = jsonschema.Draft7Validator(schema)

    validator.validate(document)
    assert not validator.is_valid(document | {"rule_file": []})


def test_runs_that_were_parked_are_an_increase_from_the_first_one_on() -> None:
    metrics_of_a_start = Metrics()

    found = metrics_of_a_start.registry.get_sample_value("starling_runs_ended_total", {"status": "parked"})

    assert found == 0


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_windows_of_an_alert_hold_several_scrapes(rule: dict[str, Any]) -> None:
    windows = [promql.parse_duration(window) for window in re.findall(r"\[(\w+)\]", rule["expr"])]

    assert all(window >= 4 * promql.parse_duration(SCRAPE["global"]["scrape_interval"]) for window in windows)


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_alert_says_what_it_means_what_to_do_and_where_to_read_on(rule: dict[str, Any]) -> None:
    told = rule["annotations"]
    page, _, anchor = told["runbook_url"].partition("#")
    headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text("utf-8"), re.MULTILINE)

    assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}
    assert promql.parse_duration(rule["for"]) is not None
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert all(told[name] for name in ("summary", "description", "action"))
    assert anchor in {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_alert_names_only_labels_of_its_result_and_commands_that_exist(rule: dict[str, Any]) -> None:
    texts = " ".join(rule["annotations"].values())
    labels = result_labels(rule["expr"])
    allowed = labels if labels is not None else series()[uses(rule["expr"])[0].metric] | OF_TARGET

    assert set(re.findall(r"\$labels\.(\w+)", texts)) <= allowed
    for command in re.findall(r"`starling ([^`]+)`", texts):
        words = re.sub(r"\{\{.*?\}\}", "name", command).split()
        parse_command(words if words[:2] != ["run", "explain"] else [*words, "id"])


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is missing: `apt-get install prometheus`")
def test_prometheus_fires_each_alert_during_its_fault_and_not_before(tmp_path: Path) -> None:
    def fires(alert: str, at: str, *found: dict[str, Any]) -> dict[str, Any]:
        query = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
        return {"expr": query, "eval_time": at, "exp_samples": list(found)}

    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": series, "values": values} for series, values in FAULTS[name].items()],
            "promql_expr_test": [
                fires(rule["alert"], "59m"),
                fires(rule["alert"], "90m", {"labels": "{}", "value": 1}),
            ],
        }
        for rule in ALERTS
        for name in [rule["alert"].removeprefix("Starling")]
    ]
    document = {"rule_files": [str(DEPLOY / "prometheus/alerts.yaml")], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(document))

    done = subprocess.run(
        ["promtool", "test", "rules", tmp_path / "test.yaml"], check=False, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_alert_names_are_unique() -> None:
    names = [rule["alert"] for rule in ALERTS]

    assert len(names) == len(set(names)) > 5


def test_scraped_jobs_have_the_names_that_expressions_match() -> None:
    jobs = [job["job_name"] for job in SCRAPE["scrape_configs"]]
    patterns = {value for each in EXPRESSIONS for use in uses(each) for value in use.matched.get("job", ())}

    assert jobs == ["starling-api", "starling-worker"]
    assert patterns
    assert all(any(re.fullmatch(pattern, job) for job in jobs) for pattern in patterns)


def test_dashboard_takes_its_data_from_the_source_that_is_chosen() -> None:
    (variable,) = DASHBOARD["templating"]["list"]
    sources = {source["datasource"]["uid"] for panel in DASHBOARD["panels"] for source in (panel, *panel["targets"])}

    assert (variable["type"], variable["query"]) == ("datasource", "prometheus")
    assert sources == {f"${{{variable['name']}}}"}
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert legend <= frozenset().union(*(use.labels for use in uses(target["expr"]))) | OF_TARGET
