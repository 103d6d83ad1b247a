"""What a caller gets over HTTP when a model plans nothing, finds nothing, cites nothing or repeats itself."""

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from starling.core.ids import new_id
from tests.support.command_line import Service, new_workspace
from tests.support.effect_recorder import AGENT, EffectRecorder
from tests.support.model_script import Answer, Body
from tests.support.model_server import ModelServer
from tests.support.platform import ScriptedModel, calls, decision, task, verdict
from tests.support.sse import Event, ask

pytestmark = pytest.mark.asyncio(loop_scope="module")

READ = calls(("read_it", {"what": "the disk"}))


@dataclass
class Caller:
    """The address of a platform, its servers' record, and the script of its model, which each test replaces."""

    url: str
    effects: EffectRecorder
    model: ModelServer
    scripts: list[ScriptedModel] = field(default_factory=list[ScriptedModel])

    def script(self, *answers: Answer, plans: tuple[Answer, ...] = ()) -> ScriptedModel:
        """Let the model give one task to the effect server, whose agent gives these answers."""
        script = ScriptedModel()
        script.supervisor(*(plans or (decision(task("t1", AGENT)), decision())))
        if answers:
            script.agent("t1", *answers)
        script.reviewer(verdict("APPROVED"))
        script.qa(Answer("It is noon in Lima [1] [2]."))
        self.scripts[:] = [script]
        self.model.requests.clear()
        self.effects.file.unlink(missing_ok=True)
        return script

    async def ask(self, text: str) -> list[Event]:
        return await ask(self.url, text, new_id())

    @property
    def asked_for_an_answer(self) -> bool:
        return any("You write the final answer" in str(body) for body in self.model.bodies)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def caller(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Caller]:
    """`starling up` with one server of effects and a scripted model."""
    folder: Path = tmp_path_factory.mktemp("answers")
    effects, config, scripts = EffectRecorder(folder / "effects"), folder / "mcp.json", list[ScriptedModel]()
    config.write_text(json.dumps({"mcpServers": {"effects": effects.as_server()}}))

    async def respond(body: Body) -> Answer:
        return await scripts[0](body)

    async with ModelServer(respond) as model:
        variables = {
            "DATABASE_URL": module_database_url,
            "STARLING_MODEL": "openai:scripted",
            "OPENAI_BASE_URL": model.url,
            "OPENAI_API_KEY": "none",
        }
        with (
            new_workspace(**variables) as workspace,
            workspace.started("up", "--port", "0", "--json", "--mcp-config", config) as process,
        ):
            service = await asyncio.to_thread(Service.ready, process)
            yield Caller(service.url, effects, model, scripts)


async def test_failed_tasks_are_answered_by_what_was_tried_and_not_by_a_model(caller: Caller) -> None:
    caller.script(calls(("get_weather", {})), Answer("It is noon in Lima."))
    body = {"input": "What time is it in Lima?", "thread_id": new_id()}

    async with aiohttp.ClientSession(caller.url) as client, client.post("/process", json=body) as response:
        result = await response.json()

    assert (result["status"], result["code"], result["citations"]) == ("failed", "no_result", [])
    assert "Not answered: do t1 (get_weather failed: There is no tool 'get_weather'." in result["reply"]
    assert "What would help: a server with a tool for it" in result["reply"]
    assert "noon" not in result["reply"]
    assert not caller.asked_for_an_answer


async def test_empty_plan_is_asked_for_once_more_and_then_said_to_be_empty(caller: Caller) -> None:
    caller.script(plans=(decision(),))

    done = (await caller.ask("What time is it in Lima?"))[-1].data

    assert (done["status"], done["code"]) == ("failed", "empty_plan")
    assert "The model was asked twice, and named no task" in done["reply"]
    assert len(caller.model.requests) == 2


async def test_greeting_is_answered_by_the_supervisor_alone(caller: Caller) -> None:
    caller.script(plans=(decision(reply="Hello!"),))

    done = (await caller.ask("Hi."))[-1].data

    assert (done["status"], done["reply"], done["code"], done["citations"]) == ("succeeded", "Hello!", None, [])


async def test_partial_answer_names_the_rest_and_cites_its_sources_only(caller: Caller) -> None:
    plan = decision(task("t1", AGENT), task("t2", "nobody", "book a flight"), assumptions=["today"])
    script = caller.script(READ, plans=(plan,))
    script.reviewer(verdict("APPROVED"))

    events = await caller.ask("Read it, and book a flight.")

    done, flight = events[-1].data, {"part": "book a flight", "reason": "There is no agent 'nobody'."}
    assert done["reply"].startswith(
        "It is noon in Lima [1].\n\nNot answered: book a flight (There is no agent 'nobody'."
    )
    assert [citation["tools"] for citation in done["citations"]] == [["effects.read_it"]]
    assert (done["status"], done["assumptions"], done["degraded"]) == ("succeeded", ["today"], [flight])
    assert [event.data["code"] for event in events if event.type == "warning"][-1] == "citation_without_source"


async def test_two_hundred_identical_unsafe_calls_have_one_effect(caller: Caller) -> None:
    caller.script(calls(*[("charge", {"what": "a"})] * 200))

    events = await caller.ask("Charge it.")

    assert caller.effects.done() == ["charge a"]
    assert next(event.data["code"] for event in events if event.type == "warning") == "identical_calls"
    assert sum(event.type == "tool_start" for event in events) == 1


async def test_two_hundred_different_unsafe_calls_are_cut_to_the_limit_of_an_answer(caller: Caller) -> None:
    caller.script(calls(*(("charge", {"what": str(number)}) for number in range(200))), Answer("Enough."))

    events = await caller.ask("Charge them.")

    assert len(caller.effects.done()) == 16
    assert next(event.data["code"] for event in events if event.type == "warning") == "limit_reached"
    assert any("Not called: an answer may ask for at most 16" in str(body) for body in caller.model.bodies)
