"""What a task found is given to those that depend on it: by name, once approved, also in resumed runs and forks."""

import json
import re
from typing import Any

import pytest

from starling.core.agents import Persona
from starling.core.teams.stars import Member, StarSpec
from tests.support.model_script import Answer, Body
from tests.support.platform import BENCH, SHOP, Platform, ScriptedModel, calls, decision, task, verdict

pytestmark = pytest.mark.asyncio(loop_scope="module")

MEASURE = ("measure", {"thing": "door", "size": 42})
LOOK = calls(("look", {"thing": "disk"}))
CONTINUE: tuple[str, dict[str, Any]] = ("continue", {})
PLAN = decision(task("t1", BENCH), task("t2", SHOP, after=["t1"]))


def note(key: str, value: object) -> tuple[str, dict[str, Any]]:
    return "note", {"key": key, "value": value}


def requests_of(platform: Platform, task_id: str) -> list[Body]:
    return [body for body in platform.requests_containing(f'<task id="{task_id}">') if "tools" in body]


def state_of(body: Body) -> dict[str, Any]:
    """What an agent is told of the run."""
    found = re.search("<state_context>(.*)</state_context>", body["messages"][1]["content"], re.DOTALL)
    return json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")) if found else {}


def tools_of(body: Body) -> set[str]:
    return {tool["function"]["name"] for tool in body["tools"]}


async def test_reviewer_is_shown_what_an_agent_notes(platform: Platform, script: ScriptedModel) -> None:
    script.run(PLAN, t1=calls(MEASURE, note("width", 7)), t2=LOOK, qa=Answer("Done [1][2]."))

    await platform.ask("Measure the door.")

    review, _ = (body["messages"][1]["content"] for body in platform.requests_containing("You review the result"))
    assert '<call name="note" status="succeeded"><arguments>{"key": "width", "value": 7}</arguments>' in review


@pytest.mark.parametrize("runtime", ["native", "crewai"])
async def test_facts_of_members_come_out_under_the_task_of_their_team(
    platform: Platform, script: ScriptedModel, runtime: Any
) -> None:
    persona = Persona(role="watcher", goal="look at machines")
    member = Member(name="looker", persona=persona, server="bench", tools=("bench.look",), runtime=runtime)
    await platform.activate(StarSpec(name=f"machines_{runtime}", purpose="Looks.", members=(member,)))
    inner = decision(task("m1", "looker"), task("m2", "looker", after=["m1"]))
    script.supervisor(decision(task("t1", f"machines_{runtime}"), task("t2", BENCH, after=["t1"])), inner)
    last = [Answer("It is fine.")] if runtime == "crewai" else []
    script.agent("m1", calls(("look", {"thing": "disk"}), CONTINUE), calls(note("state", "fine")), *last)
    script.agent("m2", LOOK, *last)
    script.agent("t2", LOOK)
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Fine [1]."), Answer("Fine [1][2]."))

    stream = await platform.ask("Look.")

    assert stream.status == "succeeded", stream.reply
    asked, last_one = requests_of(platform, "m1")[0], requests_of(platform, "m2")[0]
    assert ("note" in tools_of(asked), "note" in tools_of(last_one)) == (True, False)
    assert state_of(requests_of(platform, "t2")[0])["facts"] == {"t1": {"state": "fine"}}
