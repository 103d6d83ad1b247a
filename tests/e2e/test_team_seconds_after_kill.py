"""A worker is killed while a team works: the team's `seconds` go on where they were, without the time in between."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.effect_recorder import EffectRecorder
from tests.support.model_script import Answer, Rule, Script, When
from tests.support.model_server import ModelServer
from tests.support.platform import calls, decision, task, verdict
from tests.support.platform_process import PlatformProcess

SECONDS, WORK = 14, 8  # of the team, and what one call takes; the rest is for starting the server twice
CASHIER = {"name": "cashier", "role": "Cashier", "goal": "Puts.", "server": "effects", "runtime": "native"}
TEAM: dict[str, Any] = {
    "name": "cashiers", "purpose": "Puts.", "members": [CASHIER], "limits": {"seconds": SECONDS},
}  # fmt: skip


def put(what: str) -> dict[str, str]:
    return {"what": what, "stall": "before", "gate": f"{what}.gate"}


def script() -> Script:
    """A team whose only member puts one thing after the other."""
    return Script(
        Rule(decision(task("m1", "cashier")), When(schema="supervisor_decision", contains="<team ", nth=1)),
        Rule(decision(), When(schema="supervisor_decision", contains="<team ")),
        Rule(decision(task("t1", "cashiers")), When(schema="supervisor_decision", nth=1)),
        Rule(decision(), When(schema="supervisor_decision")),
        Rule(verdict("APPROVED"), When(schema="verdict")),
        Rule(calls(("put", put("first")), ("continue", {})), When(contains='<task id="m1">', nth=1)),
        Rule(calls(("put", put("second"))), When(contains='<task id="m1">')),
        Rule(Answer("Both are put [1].")),
    )


async def send(platform: PlatformProcess, path: str, body: Any) -> Any:
    async with platform.client() as client, client.post(path, json=body) as response:
        assert response.status < 300, await response.text()
        return await response.json()


@pytest.mark.parametrize(
    ("before", "down", "after", "status", "second"),
    [(WORK, 0, WORK, "failed", "failed"), (0, SECONDS, 0, "approved", "succeeded")],
    ids=["it works longer than it may in both lives together", "it is down for longer than it may work"],
)
async def test_seconds_of_a_team_go_on_after_its_worker_was_killed(
    open_folder: Path, before: int, down: int, after: int, status: str, second: str
) -> None:
    effects = EffectRecorder(open_folder / "effects")
    async with ModelServer(script()) as model:
        variables = model.variables | {"STARLING_LIMITS": json.dumps({"lease_seconds": 2})}
        async with PlatformProcess.running(open_folder, {"effects": effects.as_server()}, variables) as platform:
            await send(platform, "/v1/teams/cashiers/versions", {"spec": TEAM})
            await send(platform, "/v1/teams/cashiers/activate", {})
            run = (await send(platform, "/v1/runs", {"input": "Put both.", "thread_id": "t"}))["run_id"]
            await effects.until("arrived", "first")
            await asyncio.sleep(before)
            effects.open("first.gate")
            await effects.until("arrived", "second")
            assert await platform.kill() == []
            await asyncio.sleep(down)
            await platform.start()
            await effects.until("arrived", "second", 2)
            await asyncio.sleep(after)
            effects.open("second.gate")
            events = await platform.read(run)

    results = {event.data["path"]: event.data for event in events if event.type == "task_result"}
    assert (results["t1"]["status"], results["t1/m1"]["status"]) == (status, status)
    assert [event.data["status"] for event in events if event.type == "tool_result"] == ["succeeded", second]
