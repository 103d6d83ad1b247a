"""Final answers against their sources: what no result has is sent back once, then marked; excerpts of the others."""

from typing import Any

import pytest

from starling.core.agents import Persona
from starling.core.teams.stars import Member, StarSpec
from tests.integration.brain.shared.test_final_answer import typed
from tests.support.interrupted_runs import wait_for_event
from tests.support.model_script import Answer
from tests.support.platform import BENCH, Platform, RunStream, ScriptedModel, calls, decision, task, verdict
from tests.support.run_factories import locked, wait_for_lock_waiter

pytestmark = pytest.mark.asyncio(loop_scope="module")

REQUEST = "Measure the door and look at the disk."
RIGHT, WRONG = "The door has 217 cm [1].", "The door has 340 cm [1], see `/srv/doors.txt`."
MARKED = "The door has 340 [?] cm [1], see `/srv/doors.txt` [?]."


def plan(script: ScriptedModel, *answers: Answer) -> None:
    """Have the door measured with 217 cm, and the disk, for the second result, with 340 cm."""
    script.run(
        decision(task("t1", BENCH), task("t2", BENCH)),
        t1=calls(("measure", {"thing": "door", "size": 217})),
        t2=calls(("look", {"thing": "disk"}), ("measure", {"thing": "disk", "size": 340})),
    )
    script.qa(*answers)


def final_requests(platform: Platform) -> list[str]:
    """What the model was asked for the final answer, each time the last message."""
    return [body["messages"][-1]["content"] for body in platform.requests_containing("You write the final answer")]


def marks(stream: RunStream) -> list[str]:
    return [one["message"] for one in stream.of("warning") if one["code"] == "unsupported_statement"]


@pytest.mark.parametrize("second", [Answer(" "), Answer("The door", finish_reason="length"), Answer(status=400)])
async def test_first_answer_stays_with_marks_where_there_is_no_second(
    platform: Platform, script: ScriptedModel, second: Answer
) -> None:
    plan(script, Answer(WRONG), second)

    stream = await platform.ask(REQUEST)

    assert (stream.status, stream.reply, typed(stream)) == ("succeeded", MARKED, MARKED)
    assert len(marks(stream)) == 1


async def test_second_answer_after_a_fault_of_form_is_not_sent_back_again(
    platform: Platform, script: ScriptedModel
) -> None:
    plan(script, Answer(" "), Answer(WRONG))

    stream = await platform.ask(REQUEST)

    assert (stream.reply, len(final_requests(platform))) == (MARKED, 2)


async def test_document_in_json_is_warned_of_and_not_marked(platform: Platform, script: ScriptedModel) -> None:
    plan(script, Answer('{"door": 345}'))

    stream = await platform.ask(f"{REQUEST} As JSON.")

    assert (stream.reply, len(marks(stream))) == ('{"door": 345}', 1)


async def test_answer_of_a_team_is_checked_inside_it_and_the_runs_answer_against_what_the_team_said(
    platform: Platform, script: ScriptedModel
) -> None:
    may: Any = {"server": "bench", "tools": ("bench.measure",), "runtime": "native"}
    member = Member(name="surveyor", persona=Persona(role="surveyor", goal="measure doors"), **may)
    await platform.activate(StarSpec(name="surveyors", purpose="Measures doors.", members=(member,)))
    script.supervisor(decision(task("t1", "surveyors")), decision(task("t2", "surveyor")))
    script.agent("t2", calls(("measure", {"thing": "door", "size": 217})))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("It has 340 cm [1]."), Answer("It has 340 cm [1]."), Answer("The door has 340 cm [1]."))

    stream = await platform.ask(REQUEST)

    assert (stream.reply, len(final_requests(platform))) == ("The door has 340 [?] cm [1].", 4)
    inside, outside = stream.of("warning")
    assert {inside["code"], outside["code"]} == {"unsupported_statement"}
    assert (inside["path"][:2], outside["path"]) == ("t1", "")
    [source] = stream.done["citations"]
    assert [one["tool"] for one in source["calls"]] == ["bench.measure"]
    assert [(one["text"], "call_id" in one) for one in source["excerpts"]] == [("It has 340 [?] cm.", False)]


async def test_resumed_run_replays_both_answers_and_warns_once(
    platform: Platform, script: ScriptedModel, module_database_url: str
) -> None:
    plan(script, Answer(WRONG), Answer(WRONG))
    key = await platform.accept(REQUEST)
    async with locked("branches", module_database_url), platform.executing(key):
        await wait_for_lock_waiter(module_database_url)

    stream = await platform.finish(key)

    assert (stream.status, stream.reply, typed(stream), len(marks(stream))) == ("succeeded", MARKED, MARKED, 1)
    assert 2 <= len(final_requests(platform)) <= 4


async def test_run_that_stops_before_the_second_answer_asks_for_it_with_the_same_request(
    platform: Platform, script: ScriptedModel
) -> None:
    plan(script, Answer(WRONG), Answer("The door", hold="for ever", hold_after=1), Answer(RIGHT))
    key = await platform.accept(REQUEST)
    async with platform.executing(key):
        await wait_for_event(platform, key, "thinking", 2)

    stream = await platform.finish(key)

    assert (stream.status, stream.reply, stream.codes) == ("succeeded", RIGHT, [])
    first, again, resumed = final_requests(platform)
    assert (first != again, again == resumed) == (True, True)
