"""The dashboards for Langfuse: what their import sends, and that they show what Starling sends."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.tracing.conftest import Open
from tests.support.langfuse_dashboards import PUBLIC_KEY, SECRET_KEY, DashboardServer, widget_faults
from tests.support.model_script import Answer
from tests.support.otlp_collector import Collector
from tests.support.platform import BENCH, SHOP, ScriptedModel, calls, decision, task, verdict

FOLDER = Path(__file__).parents[3] / "deploy" / "langfuse"
FILES = sorted((FOLDER / "dashboards").glob("*.json"))
UNREADABLE = Answer("I will not write JSON.")


@pytest.fixture
async def langfuse() -> AsyncGenerator[DashboardServer]:
    async with DashboardServer() as server:
        yield server


async def imported(langfuse: DashboardServer, *options: str, secret: str = SECRET_KEY) -> tuple[int, str]:
    """Run the script; return its exit code and what it printed."""
    environment = {
        "PYTHONPATH": ":".join(sys.path),
        "LANGFUSE_HOST": langfuse.url,
        "LANGFUSE_PUBLIC_KEY": PUBLIC_KEY,
        "LANGFUSE_SECRET_KEY": secret,
    }
    command = [sys.executable, str(FOLDER / "import_dashboards.py"), *options]
    done = await asyncio.to_thread(
        subprocess.run, command, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def widgets() -> Iterator[dict[str, Any]]:
    for file in FILES:
        yield from (tile["widget"] for tile in json.loads(file.read_text())["widgets"])


async def test_second_import_changes_only_what_somebody_changed(langfuse: DashboardServer) -> None:
    dry = await imported(langfuse, "--dry-run")
    assert (dry[0], langfuse.changes) == (0, [])

    first = await imported(langfuse)
    made = len(langfuse.changes)
    second = await imported(langfuse)
    assert (first[0], second[0], langfuse.refused) == (0, 0, [])
    assert f"{made} changes to make" in dry[1]
    assert len(langfuse.changes) == made == len(list(widgets())) + len(FILES)
    assert {one["name"] for one in langfuse.dashboards.values()} == {
        "Starling: why plans fail",
        "Starling: verdicts by agent",
        "Starling: tool errors",
        "Starling: cost by team",
    }

    changed = next(iter(langfuse.widgets.values()))
    changed["filters"] = []
    await imported(langfuse)
    assert langfuse.changes[made:] == [("PATCH", f"/api/public/unstable/dashboard-widgets/{changed['id']}")]


@pytest.mark.parametrize(
    ("version", "secret", "code", "said"),
    [
        ("4.58.9", SECRET_KEY, 2, "Langfuse 4.58.9"),
        ("5.0.0", SECRET_KEY, 2, "Langfuse 5.0.0"),
        ("4.60.1", "sk-lf-wrong", 1, "answered 401: Invalid credentials\n"),
        (None, SECRET_KEY, 1, "Check LANGFUSE_HOST and the keys."),
    ],
)
async def test_import_stops_at_an_unknown_version_a_wrong_key_or_another_server(
    langfuse: DashboardServer, version: str | None, secret: str, code: int, said: str
) -> None:
    langfuse.version = version

    ended, text = await imported(langfuse, secret=secret)

    assert (ended, said in text, langfuse.changes) == (code, True, [])


@pytest.mark.parametrize(
    "change",
    [
        {"dimensions": [{"field": "agent_name"}]},
        {"metrics": [{"measure": "cost", "agg": "sum"}]},
        {"filters": [{"column": "agent", "operator": "any of", "type": "stringOptions", "value": ["x"]}]},
        {"filters": [{"column": "name", "operator": "like", "type": "string", "value": "x"}]},
        {"dimensions": [{"field": "name"}, {"field": "type"}], "chartType": "PIE", "chartConfig": {"type": "PIE"}},
    ],
)
def test_stand_in_refuses_what_views_of_langfuse_do_not_have(change: dict[str, Any]) -> None:
    (widget,) = [one for one in widgets() if one["name"] == "Starling: cost by team"]

    assert list(widget_faults(widget)) == []
    assert list(widget_faults(widget | change)) != []


async def test_each_filter_of_a_widget_selects_something_that_runs_send(
    opened: Open, script: ScriptedModel, collector: Collector
) -> None:
    script.supervisor(decision(task("t1", BENCH), task("t2", SHOP)), UNREADABLE, UNREADABLE)
    script.agent("t1", calls(("look", {"thing": "disk"})))
    script.agent("t2", calls(("fail", {"why": "door"})))
    script.reviewer(verdict("REJECTED", "Look again."), verdict("FIXED", refined="It is fine."), verdict("APPROVED"))
    keys = {"langfuse_public_key": PUBLIC_KEY, "langfuse_secret_key": SECRET_KEY}

    async with opened(**keys, langfuse_host=collector.url) as platform:
        await platform.ask("How are disk and door?")
        failing = await platform.accept("And now?")
        await platform.finish(failing)

    sent = [*map(observation, collector.spans), *map(score, collector.scores)]
    sent.append({"view": "scores-numeric", "name": "user_feedback"})  # sent by another test
    empty = [widget["name"] for widget in widgets() if not any(selects(widget, one) for one in sent)]
    assert collector.refused == []
    assert empty == []
    assert {one["traceName"] for one in sent if one["view"] == "observations"} == {"run"}


def observation(span: Any) -> dict[str, Any]:
    kind, level = (
        span["langfuse.observation.type"].upper(),
        span.attributes.get("langfuse.observation.level", "DEFAULT"),
    )
    trace = span["langfuse.trace.name"]
    return {"view": "observations", "name": span.name, "type": kind, "level": level, "traceName": trace}


def score(body: dict[str, Any]) -> dict[str, Any]:
    view = "scores-numeric" if body["dataType"] == "NUMERIC" else "scores-categorical"
    return {"view": view, "name": body["name"], "value": body["value"]}


def selects(widget: dict[str, Any], one: dict[str, Any]) -> bool:
    return widget["view"] == one["view"] and all(passes(one.get(rule["column"]), rule) for rule in widget["filters"])


def passes(found: Any, rule: dict[str, Any]) -> bool:
    match rule["operator"]:
        case "any of":
            return found in rule["value"]
        case "ends with":
            return str(found).endswith(rule["value"])
        case _:
            return found == rule["value"]
