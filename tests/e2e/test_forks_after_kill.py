"""The platform is killed during a call of a fork: the fork goes on, and nothing that it inherits is done again."""

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.support.effect_recorder import AGENT, EffectRecorder
from tests.support.http_client import ApiClient
from tests.support.model_script import Answer, Rule, Script, When
from tests.support.model_server import ModelServer
from tests.support.platform import calls, decision, task, verdict
from tests.support.platform_process import PlatformProcess
from tests.support.sse import Event

PUT: dict[str, Any] = {"what": "kept", "stall": "after", "gate": "gate"}


def script() -> Script:
    return Script(
        Rule(decision(task("t1", AGENT), task("t2", AGENT, after=["t1"])), When(schema="supervisor_decision")),
        Rule(verdict("APPROVED"), When(schema="verdict")),
        Rule(calls(("read_it", {"what": "list"})), When(tool="read_it", contains='<task id="t1">')),
        Rule(calls(("put", PUT)), When(tool="put", contains='<task id="t2">')),
        Rule(Answer("Both are done [1][2].")),
    )


async def approved(platform: PlatformProcess, run: str) -> None:
    """Approve what a run asks, once it asks."""
    async with platform.client() as client:
        api = ApiClient("", client)
        while (state := await api.get(f"/v1/runs/{run}"))["status"] != "waiting":
            assert state["ended_at"] is None, state
            await asyncio.sleep(0.05)
        [asked] = state["interrupts"]
        answer = {"interruptId": asked["id"], "status": "resolved", "payload": {"approved": True}}
        await api.post(f"/v1/runs/{run}/resume", 202, json=[answer])


def results(events: list[Event]) -> list[tuple[str, str, bool]]:
    found = (event.data for event in events if event.type == "task_result")
    return [(data["path"], data["status"], data.get("inherited", False)) for data in found]


async def test_fork_goes_on_after_a_kill_with_what_it_inherits_and_the_key_of_the_original(open_folder: Path) -> None:
    effects = EffectRecorder(open_folder / "effects")
    effects.open("gate")
    async with ModelServer(script()) as model:
        variables = {**model.variables, "STARLING_LIMITS": json.dumps({"lease_seconds": 2})}
        async with PlatformProcess.running(open_folder, {"effects": effects.as_server()}, variables) as platform:
            [started, *_] = await platform.ask("Do both.")
            effects.close("gate")
            async with platform.client() as client:
                body = {"at": "t2", "live": True}
                accepted = await ApiClient("", client).post(f"/v1/runs/{started.data['run_id']}/fork", 202, json=body)
            await approved(platform, accepted["run_id"])
            await effects.until("done", "kept", 2)
            await platform.kill()
            effects.open("gate")
            await platform.start()

            events = await platform.read(accepted["run_id"])

    assert events[-1].data["status"] == "succeeded"
    assert results(events) == [("t1", "approved", True), ("t2", "approved", False)]
    assert effects.done().count("read_it list") == 1
    keys = [line["key"] for line in effects.lines("done") if line["tool"] == "put"]
    assert (len(keys), len(set(keys))) == (3, 1)
    agents = ['<task id="t1">' in str(body["messages"]) for body in model.bodies if body.get("tools")]
    assert sum(agents) == 1
