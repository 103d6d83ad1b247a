"""A platform is killed while agents of CrewAI work: they go on without asking for a recorded answer again."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.effect_recorder import EffectRecorder
from tests.support.model_documents import decision_json, task, verdict_json
from tests.support.model_script import Answer, Body, Rule, Script, When
from tests.support.model_server import ModelServer
from tests.support.platform_process import PlatformProcess

BUYER: Mapping[str, Any] = {
    "id": "buyer",
    "runtime": "crewai",
    "persona": {"role": "Buyer", "goal": "Buy what is needed.", "backstory": "Ten years of tea."},
    "tools": ["effects.*"],
}
BETWEEN, DURING = '<task id="between">', '<task id="during">'


def call(tool: str, what: str, **more: str) -> Mapping[str, Any]:
    return {"name": tool, "arguments": {"what": what, **more}}


def script() -> Script:
    """One agent's second answer is held; the other's call, and one beside it that only reads, do not return."""
    stalled = {"stall": "after", "gate": "gate"}
    charged, paid = call("charge", "first"), call("pay", "second", **stalled)
    return Script(
        Rule(
            Answer(decision_json(task("between", "buyer"), task("during", "buyer"))), When(schema="supervisor_decision")
        ),
        Rule(Answer(verdict_json("APPROVED")), When(schema="verdict")),
        Rule(Answer(tool_calls=[charged]), When(contains=BETWEEN, tool="charge", nth=1)),
        Rule(Answer("It was charged.", hold="answer"), When(contains=BETWEEN, tool="charge")),
        Rule(Answer(tool_calls=[paid, call("read_it", "beside")]), When(contains=DURING, tool="charge", nth=1)),
        Rule(Answer("It was paid."), When(contains=DURING, tool="charge")),
        Rule(Answer("Both are done.")),
    )


def asked(model: ModelServer, of: str) -> list[int]:
    """How many results of calls each of an agent's requests had."""
    return [_results(body) for body in model.bodies if body.get("tools") and of in str(body["messages"])]


def _results(body: Body) -> int:
    return sum(message["role"] == "tool" for message in body["messages"])


async def post(platform: PlatformProcess, path: str, body: Mapping[str, Any]) -> Any:
    async with aiohttp.ClientSession(platform.address) as client, client.post(path, json=body) as response:
        assert response.status < 300, await response.text()
        return await response.json()


async def held(model: ModelServer) -> None:
    """Return once the second answer of the first agent has been asked for."""
    count = 0
    while 1 not in asked(model, BETWEEN):
        count += 1
        await model.received(count)


async def test_killed_in_a_call_and_between_two_answers_each_effect_occurs_once(open_folder: Path) -> None:
    effects = EffectRecorder(open_folder / "effects")
    async with ModelServer(script()) as model:
        environment = {"STARLING_MODEL": "openai:scripted", "OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "none"}
        environment["STARLING_LIMITS"] = json.dumps({"lease_seconds": 2})
        servers = {"effects": effects.as_server()}
        async with PlatformProcess.running(open_folder, servers, environment) as platform:
            await post(platform, "/v1/agents", BUYER)
            run = (await post(platform, "/v1/runs", {"input": "Buy both.", "thread_id": "t"}))["run_id"]
            async with asyncio.timeout(60):
                await effects.until("done", "second")
                await effects.until("done", "beside")
                await held(model)

            assert await platform.kill() == []
            effects.open("gate")
            model.release("answer")
            await platform.start()
            events = await platform.read(run)

    outcomes = {event.data["task_id"]: event.data for event in events if event.type == "task_result"}
    assert {name: (one["status"], one["summary"]) for name, one in outcomes.items()} == {
        "between": ("approved", "It was charged."),
        "during": ("approved", "It was paid."),
    }
    assert events[-1].data["status"] == "succeeded"
    assert sorted(set(effects.done())) == ["charge first", "pay second", "read_it beside"]
    assert [effects.done().count(effect) for effect in ("charge first", "pay second")] == [1, 1]
    assert asked(model, BETWEEN) == [0, 1, 1]
    assert asked(model, DURING) == [0, 2]
    assert _codes(events) == []


def _codes(events: Sequence[Any]) -> list[str]:
    return [event.data["code"] for event in events if event.type == "warning"]
