"""The root cause of runs, each told by its rows; the stories of runs are in the modules beside."""

from typing import get_args

import pytest

from brain.explanation.rules.incident import CauseCode
from tests.support.run_rows import SHOP, WEATHER, RunStory, Told, planned, story_of_five
from tests.unit.brain.explanation import (
    access_stories,
    call_stories,
    end_stories,
    language_stories,
    plan_stories,
    skill_stories,
    sound_stories,
    verdict_stories,
)

_STORIES = (
    access_stories,
    call_stories,
    end_stories,
    language_stories,
    plan_stories,
    skill_stories,
    verdict_stories,
)
FAILURES = [failure for stories in _STORIES for failure in stories.FAILURES]


def test_every_cause_is_the_root_cause_of_a_run() -> None:
    assert {code for code, _ in FAILURES} == set(get_args(CauseCode.__value__))


@pytest.mark.parametrize(("code", "told"), FAILURES, ids=[told.__name__ for _, told in FAILURES])
def test_run_names_its_root_cause_first(code: str, told: Told) -> None:
    found = told()

    assert found.cause is not None
    assert found.cause.code == code, [(one.code, one.text) for one in found.causes]
    assert found.cause == found.causes[0]
    assert found.cause.refs


@pytest.mark.parametrize("told", [*sound_stories.SOUND, *language_stories.SOUND], ids=lambda told: told.__name__)
def test_run_in_which_everything_was_made_up_for_has_no_cause(told: Told) -> None:
    assert told().causes == []


def test_first_of_two_failures_is_the_cause_and_the_other_one_follows() -> None:
    story = story_of_five()
    story.start("t3")
    story.call("t3", "shop.price", {"item": "coat"}, "shop did not answer.", "timeout")
    story.end("t3", "shop did not answer.", "timeout")
    story.plan(planned("t6", WEATHER, "How warm is it in Rome?"), version=2)
    story.start("t6")
    story.call("t6", "weather.now", {"city": "Rom"}, "There is no city Rom.", "tool_error")
    story.end("t6", "There is no city Rom.", "tool_error")

    found = story.explained()

    assert [(one.code, one.task) for one in found.causes] == [("degraded_server", "t3"), ("wrong_argument", "t6")]


def test_cause_in_a_team_follows_the_member_that_failed() -> None:
    assert [(one.code, one.task) for one in end_stories.member_that_fails().causes] == [
        ("failed_team_member", "t1/t1"),
        ("wrong_argument", "t1/t1"),
    ]


def test_run_without_a_task_has_one_cause_for_each_part_that_no_agent_can_do() -> None:
    story = RunStory()
    story.plan()

    found = story.explained("failed", "no_result", degraded=[{"part": "Fly", "reason": "No agent can fly."}])

    assert [one.code for one in found.causes] == ["unmet_tool"]


def test_run_that_was_cancelled_while_it_waited_has_that_as_its_only_cause() -> None:
    story = RunStory()
    story.plan(planned("t1", "buyers", "Buy a coat"), planned("t2", WEATHER, "How warm is it?"))
    story.start("t2")
    story.call("t2", "weather.now", {}, "weather did not answer.", "timeout")
    story.end("t2", "weather did not answer.", "timeout")
    story.start("t1")
    story.plan(planned("t1", SHOP, "Order the coat"), star="t1")
    story.start("t1/t1")
    asked = {"name": "shop.order", "call_id": story.begin_call("t1/t1", "shop.order", {"item": "coat"})}
    story.ask("approval", "cancelled", "t1/t1", call=asked)
    story.event("tool_result", **asked, result="The run was cancelled. The call was cut off.", status="failed")
    story.end("t1/t1", "The run was cancelled.", "cancelled")
    story.end("t1", "The run was cancelled.", "cancelled")

    found = story.explained("cancelled", "cancelled")

    assert [(one.code, one.task) for one in found.causes] == [("cancelled_by_user", None), ("degraded_server", "t2")]
    assert found.causes[0].text == (
        "The run was cancelled, 13.0 s after it was accepted. It cut off task t1 (“Buy a coat”) of agent buyers, while "
        "the run waited for the approval of shop.order. "
        "Before that, task t2 (“How warm is it?”) of agent mcp_agent_weather had failed."
    )
    assert {one.task: one.code for one in found.failures} == {
        "t2": "degraded_server",
        "t1/t1": "cancelled_by_user",
        "t1": "cancelled_by_user",
    }


def test_quotations_in_a_sentence_use_single_marks_inside_and_values_are_quoted_as_texts_are() -> None:
    story = story_of_five()
    story.start("t3")
    story.call("t3", "shop.price", {"item": "Ann's"}, "The clerk says: “We have no 'Ann's'.”", "tool_error")
    story.end("t3", "no price", "tool_error")

    cause = story.explained().cause

    assert cause is not None
    assert "“The clerk says: ‘We have no 'Ann's'.’”. item=“Ann's” is neither" in cause.text


def test_words_that_a_task_lacked_are_shown_as_the_other_task_writes_them() -> None:
    cause = plan_stories.text_that_lacks_a_later_result().cause

    assert cause is not None
    assert cause.text.endswith("and t2 delivers sales, figures.")


def test_reason_that_each_attempt_was_rejected_for_is_told_once() -> None:
    cause = call_stories.price_instead_of_an_order().cause

    assert cause is not None
    assert cause.text.endswith("The reviewer rejected the result: “It says what the coat costs”.")


def test_text_of_a_lost_budget_says_who_used_it() -> None:
    story = story_of_five()
    story.model("supervisor/1", 900)
    story.model("t1", 100)
    story.start("t3")
    story.end("t3", "The token budget of the run is used up: 1000 of 1000 tokens.", "budget_exhausted")

    cause = story.explained().cause

    assert cause is not None
    assert cause.text.endswith("1000 tokens”. Most of it was used by the supervisor: 900 of 1,000 tokens.")


def test_text_of_a_cause_names_agent_tool_task_and_reason() -> None:
    cause = call_stories.unknown_value().cause

    assert cause is not None
    assert all(part in cause.text for part in (SHOP, "shop.price", "task t3", "We sell nothing named cote"))
    assert [(ref.kind, ref.id) for ref in cause.refs[:2]] == [("task", "t3"), ("call", "t3.0.0")]
