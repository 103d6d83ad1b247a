"""What an explanation tells besides causes."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from brain.explanation.explain import explain
from tests.support.run_rows import BEGAN, RUN, RunStory, planned
from tests.unit.brain.explanation.end_stories import team_that_failed_its_proof

AGENT = "mcp_agent_shop"


def two_tasks() -> RunStory:
    story = RunStory()
    story.plan(
        planned("t1", AGENT, "Find the price"), planned("t2", AGENT, "Order it", ["t1"]), why="One after another."
    )
    return story


def test_failed_task_and_the_task_that_it_kept_from_running_are_told() -> None:
    story = two_tasks()
    story.start("t1")
    story.call("t1", "shop.price", {"item": "coat"}, "shop did not answer.", "timeout")
    story.end("t1", "shop.price failed: shop did not answer.", "timeout")

    found = story.explained("failed", "no_result").failures

    assert [(one.task, one.code, one.followed_from) for one in found] == [
        ("t1", "degraded_server", None),
        ("t2", "never_reached", "t1"),
    ]
    assert "it needed t1, which failed" in found[1].text


def test_missing_part_of_the_answer_is_told_by_its_failed_task_or_by_its_own_reason() -> None:
    story = two_tasks()
    story.start("t1")
    story.end("t1", "shop did not answer.", "timeout")
    parts = [("Find the price", "shop did not answer."), ("Fly", "No agent can fly.")]

    found = story.explained(degraded=[{"part": part, "reason": reason} for part, reason in parts]).degraded

    assert [one.reason for one in found] == [reason for _, reason in parts]
    assert [one.text for one in found] == [
        "“Find the price” was not answered, because task t1 failed.",
        "“Fly” was not answered: “No agent can fly”.",
    ]


def test_plan_is_told_with_its_reason_and_what_became_of_its_tasks() -> None:
    story = two_tasks()
    story.done("t1", "shop.price", {}, "80 EUR")

    found = story.explained("running").planned

    assert [(task.path, task.depends_on, task.status) for task in found.versions[0].tasks] == [
        ("t1", [], "approved"),
        ("t2", ["t1"], "pending"),
    ]
    assert "One after another" in found.text


def test_task_whose_question_nobody_has_answered_is_waiting() -> None:
    story = two_tasks()
    story.start("t1")
    story.ask("approval", "open", "t1", call={"name": "shop.order", "call_id": "t1.0.0"})

    found = story.explained("waiting")

    assert [task.status for task in found.planned.versions[0].tasks] == ["waiting", "pending"]
    assert "2 tasks (1 pending, 1 waiting)" in found.planned.text
    assert "has waited 1.0 s for the approval of shop.order (t1); nobody has given it yet" in found.waited[0].text


def test_verdict_is_told_with_the_calls_that_it_rested_on() -> None:
    story = two_tasks()
    story.start("t1")
    first = story.call("t1", "shop.price", {}, "80 EUR")
    second = story.call("t1", "shop.stock", {}, "no list", "tool_error")
    story.verdict("t1", "REJECTED", "Half of it is missing.")

    (found,) = story.explained("running").verdicts

    assert (found.status, found.rested_on) == ("REJECTED", [first, second])
    assert "shop.price (succeeded), shop.stock (failed)" in found.text


def test_error_that_was_passed_over_is_told_with_its_call() -> None:
    story = two_tasks()
    story.start("t1")
    lost = story.call("t1", "shop.stock", {}, "no list", "tool_error")
    story.call("t1", "shop.price", {}, "80 EUR", same_answer=True)
    story.verdict("t1", "APPROVED")
    story.end("t1", "80 EUR")

    (found,) = story.explained().passed_over

    assert (found.task, found.agent, found.tool, found.call) == ("t1", AGENT, "shop.stock", lost)


def test_attempts_tries_calls_models_and_workers_that_came_again_are_told() -> None:
    story = two_tasks()
    story.run = replace(RUN, crashes=1)
    story.start("t1")
    story.call("t1", "shop.price", {}, "no list", "tool_error")
    story.start("t1")
    story.call("t1", "shop.price", {"item": "coat"}, "no list", "tool_error")
    story.end("t1", "shop.price failed: no list", "tool_error")
    story.done("t1.2", "shop.price", {}, "80 EUR")
    story.model("t1", 0, error="llm_timeout")

    found = story.explained().retried

    assert [(one.kind, one.count) for one in found] == [
        ("task", 2),
        ("attempt", 2),
        ("call", 2),
        ("model", 1),
        ("run", 1),
    ]


@pytest.mark.parametrize(
    ("run", "told"),
    [
        ({"claims": 1}, None),
        ({"claims": 2}, None),
        ({"claims": 3}, (1, "stopped 1 time ")),
        ({"claims": 3, "isolation": "lost"}, (1, "ended, or lost it, 1 time ")),
        ({"claims": 5, "isolation": "due", "crashes": 1}, (3, "ended, or lost it, 3 times ")),
    ],
    ids=["one worker", "resumed after its answer", "handed over", "worker lost", "lost alone, too"],
)
def test_other_workers_that_continued_a_run_are_told(run: dict[str, Any], told: tuple[int, str] | None) -> None:
    story = two_tasks()
    story.run = replace(RUN, **run)
    story.ask("approval", "resolved", "t1", answered_at=BEGAN + timedelta(minutes=5), answered_by="Ann")

    found = story.explained().retried

    assert [one.count for one in found] == ([told[0]] if told else [])
    assert not told or told[1] in found[0].text


def test_waits_are_told_with_their_length_and_their_end() -> None:
    story = two_tasks()
    story.run = replace(RUN, started_at=BEGAN + timedelta(seconds=90))
    story.ask("approval", "resolved", "t1", answered_at=BEGAN + timedelta(hours=2, minutes=5), answered_by="Ann")
    story.ask("clarification", "open", "supervisor/1", created_at=BEGAN)
    rows = story.rows("waiting")

    found = explain(rows, BEGAN + timedelta(seconds=200)).waited

    assert [(one.kind, one.state, round(one.seconds)) for one in found] == [
        ("queue", "over", 90),
        ("approval", "resolved", 7499),
        ("clarification", "open", 200),
    ]
    assert "1 min 30 s" in found[0].text
    assert "2 h 4 min" in found[1].text
    assert "Ann" in found[1].text


def test_run_that_no_worker_has_begun_is_said_to_wait_in_the_queue() -> None:
    story = RunStory()
    story.run = replace(RUN, started_at=None)

    (found,) = explain(story.rows("queued"), BEGAN + timedelta(seconds=90)).waited

    assert (found.state, found.text) == ("open", "The run has waited 1 min 30 s in the queue, and no worker began it.")


def test_tokens_are_told_by_agent() -> None:
    story = two_tasks()
    story.plan(planned("t1", "looker", "Look"), star="t2")
    places = ("supervisor/1", "t1", "t1/review", "t2/t1", "t2/t1/review", "t2/supervisor/1", "t2/qa/1", "qa/1")
    for place in places:
        story.model(place, 10)

    found = {one.agent: one.tokens for one in story.explained("running").cost.by_agent}

    assert found == {
        "the supervisor": 20,
        AGENT: 10,
        "the reviewer": 20,
        "looker": 10,
        "the final answer": 20,
    }


def test_pruned_run_is_told_by_its_result_and_says_what_is_no_longer_kept() -> None:
    story = two_tasks()
    story.start("t1")
    story.end("t1", "shop did not answer.", "timeout")
    rows = story.rows("failed", "no_result")
    rows = replace(rows, run=replace(rows.run, trimmed=4), events=[], steps=[])

    found = explain(rows, story.now)

    assert [one.what for one in found.pruned] == ["events", "steps", "journal", "interrupts", "artifacts"]
    assert found.cause is not None
    assert (found.cause.code, "shop did not answer" in found.cause.text) == ("failed_task", True)
    assert found.planned.text == "No plan is kept."


def test_whole_results_that_were_deleted_are_named() -> None:
    story = two_tasks()
    story.start("t1")
    story.end("t1", "80 EUR", artifacts=["a1", "b2"])

    (found,) = explain(replace(story.rows(), artifacts=frozenset({"b2"})), story.now).pruned

    assert found.what == "artifacts"
    assert "deleted: a1." in found.text


def test_skill_that_was_deleted_is_said_to_be_unknown() -> None:
    story = two_tasks()
    story.start("t1")
    story.end("t1", "80 EUR", skills=["018f0000-0000-7000-8000-0000000000aa"])

    assert [one.what for one in story.explained().pruned] == ["skills"]


def test_failed_build_does_not_follow_from_a_task_of_its_trial() -> None:
    found = team_that_failed_its_proof().failures

    assert [(one.task, one.code, one.followed_from) for one in found if one.task == "t1"] == [
        ("t1", "build_failed", None)
    ]
