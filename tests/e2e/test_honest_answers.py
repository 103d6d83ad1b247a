"""What a caller gets over HTTP from models that plan, find or cite nothing, repeat themselves or have habits."""

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
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
CALL = '{"name": "read_it", "arguments": {"what": "the disk"}}'
THOUGHT = "SECRET thoughts about the disk"
FINE = "The disk is fine [1]."


def planned(agent: str = AGENT) -> str:
    """A decision of the members that a small model writes."""
    return json.dumps({"selected_agents": [{"task_id": "t1", "agent": agent, "task": "read the disk"}]})


@dataclass(frozen=True)
class Habit:
    """Answers of one run; what isn't set is as it should be."""

    plan: Answer = field(default_factory=lambda: Answer(planned()))
    agent: Answer = READ
    verdict: Answer = field(default_factory=lambda: verdict("APPROVED"))
    final: Answer = field(default_factory=lambda: Answer(FINE))


HABITS = {
    "reasoning before JSON": Habit(plan=Answer(f"<think>\n{THOUGHT}: {{effects}}\n</think>\n\n{planned()}")),
    "reasoning in a stream": Habit(final=Answer(f"<think>{THOUGHT}, and so on.</think>\n{FINE}")),
    "reasoning with another marker": Habit(final=Answer(f"<thinking>\n{THOUGHT}\n</thinking>\n{FINE}")),
    "reasoning in a field of its own": Habit(
        plan=Answer(planned(), reasoning=THOUGHT),
        agent=replace(READ, reasoning=THOUGHT),
        final=Answer(FINE, reasoning=THOUGHT),
    ),
    "reasoning without its beginning, as in an earlier reply": Habit(
        plan=Answer(f"{THOUGHT}.\n</think>\n\n{planned()}"), final=Answer(f"{THOUGHT}.\n</think>\n\n{FINE}")
    ),
    "reasoning before a call": Habit(agent=replace(READ, content=f"<think>{THOUGHT}</think>")),
    "JSON within prose": Habit(plan=Answer(f"Sure! Here it is:\n```json\n{planned()}\n```\nShall I go on?")),
    "JSON after a sentence": Habit(verdict=Answer('I have looked at it. {"status": "APPROVED"}')),
    "JSON as Python writes it": Habit(verdict=Answer("{'status': 'APPROVED', 'changed': None,}")),
    "a verdict of one member": Habit(verdict=Answer('{"status": "APPROVED"}')),
    "an agent named by its server": Habit(plan=Answer(planned("effects"))),
    "a tool named with its server": Habit(agent=calls(("Effects_Read_It", {"what": "the disk"}))),
    "a call as text with markers": Habit(agent=Answer(f"<tool_call>\n{CALL}\n</tool_call>")),
    "a call as JSON": Habit(agent=Answer(CALL)),
    "a call as Llama writes it": Habit(agent=Answer(f"<|python_tag|>{CALL.replace('arguments', 'parameters')}")),
}


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
        self._use(script)
        return script

    def follow(self, habit: Habit) -> None:
        """Let the model give the answers of a habit."""
        script = ScriptedModel()
        script.supervisor(habit.plan)
        script.agent("t1", habit.agent)
        script.reviewer(habit.verdict)
        script.qa(habit.final)
        self._use(script)

    def _use(self, script: ScriptedModel) -> None:
        self.scripts[:] = [script]
        self.model.requests.clear()
        self.effects.file.unlink(missing_ok=True)

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


def typed(events: list[Event]) -> str:
    """Return what a reader sees at the end, for whom each new message replaces the one before."""
    parts = [event.data for event in events if event.type == "thinking"]
    return "".join(part["content"] for part in parts if part["message_id"] == parts[-1]["message_id"])


@pytest.mark.parametrize("habit", HABITS.values(), ids=HABITS)
async def test_habits_of_models_are_read_and_reasoning_is_never_sent(caller: Caller, habit: Habit) -> None:
    caller.follow(habit)

    events = await caller.ask("How is the disk?")

    done = events[-1].data
    assert (done["status"], done["reply"], typed(events)) == ("succeeded", FINE, FINE)
    assert caller.effects.done() == ["read_it the disk"]
    assert [event.data["agent"] for event in events if event.type == "task_start"] == [AGENT]
    assert [event.data for event in events if event.type in ("warning", "error")] == []
    assert done["usage"]["model_calls"] == len(caller.model.requests) == 4  # nothing had to be asked again
    assert THOUGHT not in json.dumps([event.data for event in events])


async def test_unknown_tool_is_answered_with_near_names(caller: Caller) -> None:
    caller.script(calls(("red_it", {}), ("continue", {})), READ)

    events = await caller.ask("Read it.")

    [unknown, *_] = [event.data["result"] for event in events if event.type == "tool_result"]
    assert unknown == "There is no tool 'red_it'. Did you mean read_it?"
    assert caller.effects.done() == ["read_it the disk"]


async def test_refused_output_is_shown_with_what_was_expected(caller: Caller) -> None:
    written = "I would first look at the disk, and then decide."
    caller.script(plans=(Answer(written), decision(reply="Hello!")))

    events = await caller.ask("Hi.")

    [warning] = [event.data for event in events if event.type == "warning"]
    assert (events[-1].data["reply"], warning["code"]) == ("Hello!", "llm_invalid_response")
    assert f"It wrote: {written}" in warning["message"]
    assert 'Expected: one JSON object with "plan", "selected_agents"' in warning["message"]


async def test_rate_limited_attempt_is_an_event_and_counts_as_a_model_call(caller: Caller) -> None:
    limited = Answer(status=429, headers={"Retry-After": "1"}, body='{"error": {"message": "Slow down."}}')
    caller.script(plans=(limited, decision(reply="Hello!")))

    events = await caller.ask("Hi.")

    [warning] = [event.data for event in events if event.type == "warning"]
    assert "rate limited, again in 1 s" in warning["message"]
    assert (events[-1].data["reply"], events[-1].data["usage"]["model_calls"]) == ("Hello!", 2)
