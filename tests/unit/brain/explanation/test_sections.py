"""What an explanation tells besides causes."""

from dataclasses import replace
from datetime import timedelta

from brain.explanation.explain import explain
from tests.support.run_story import BEGAN, RUN, SHOP, WRITER, RunStory, planned


def two_tasks() -> RunStory:
    story = RunStory()
    story.plan(planned("t1", SHOP, "Find the price"), planned("t2", SHOP, "Order it", "t1"), why="One after another.")
    return story


def test_missing_part_of_the_answer_is_told_by_its_failed_task_or_by_its_own_reason() -> None:
    story = two_tasks()
    story.fail("t1", "shop.price", "No answer.", "timeout")
    parts = [("Find the price", "No answer."), ("Fly", "No agent can fly.")]

    found = story.explained(degraded=[{"part": part, "reason": reason} for part, reason in parts]).degraded

    assert [one.reason for one in found] == [reason for _, reason in parts]
    assert [one.text for one in found] == [
        "“Find the price” was not answered, because task t1 failed.",
        "“Fly” was not answered: “No agent can fly”.",
    ]


def test_plan_is_told_with_its_reason_and_the_status_of_its_tasks() -> None:
    story = two_tasks()
    story.done("t1")

    found = story.explained("running").planned

    assert [(task.path, task.depends_on, task.status) for task in found.versions[0].tasks] == [
        ("t1", [], "approved"),
        ("t2", ["t1"], "pending"),
    ]
    assert "One after another" in found.text
    assert found.versions[0].text.endswith(f"; t2 {SHOP} after t1 (pending): Order it")


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
    calls = [story.call("t1", "shop.price", "80 EUR"), story.call("t1", "shop.stock", "no list", "tool_error")]
    story.verdict("t1", "REJECTED", "Half of it is missing.")

    (found,) = story.explained("running").verdicts

    assert (found.status, found.rested_on) == ("REJECTED", calls)
    assert "shop.price (succeeded), shop.stock (failed)" in found.text


def test_failed_call_beside_an_approved_result_is_told_as_passed_over() -> None:
    story = two_tasks()
    story.start("t1")
    lost = story.call("t1", "shop.price", "no list", "tool_error")
    story.call("t1", "shop.price", "80 EUR", same_answer=True)
    story.verdict("t1", "APPROVED")
    story.end("t1", "80 EUR")

    found = story.explained()

    assert [(one.task, one.agent, one.tool, one.call) for one in found.passed_over] == [
        ("t1", SHOP, "shop.price", lost)
    ]
    assert found.cause is None


def test_attempts_tries_calls_models_and_workers_that_came_again_are_told() -> None:
    story = two_tasks()
    story.run = replace(RUN, claims=3)
    story.ask("approval", "resolved", "t1", answered_at=BEGAN + timedelta(minutes=5), answered_by="Ann")
    for _ in range(2):
        story.start("t1")
        story.call("t1", "shop.price", "no list", "tool_error")
    story.end("t1", "shop.price failed: no list", "tool_error")
    story.done("t1.2", "shop.price", "80 EUR")
    story.model("t1", error="llm_timeout")

    found = story.explained().retried

    kinds = [("task", 2), ("attempt", 2), ("call", 2), ("model", 1), ("run", 1)]
    assert [(one.kind, one.count) for one in found] == kinds


def test_waits_are_told_with_their_length_and_their_end() -> None:
    story = two_tasks()
    story.run = replace(RUN, started_at=BEGAN + timedelta(seconds=90))
    story.ask("approval", "resolved", "t1", answered_at=BEGAN + timedelta(hours=2, minutes=5), answered_by="Ann")
    story.ask("clarification", "open", "supervisor/1", createdAt=BEGAN)

    found = explain(story.document("waiting"), BEGAN + timedelta(seconds=200)).waited

    assert [(one.kind, one.state, round(one.seconds)) for one in found] == [
        ("queue", "over", 90),
        ("approval", "resolved", 7498),
        ("clarification", "open", 200),
    ]
    assert [text in one.text for text, one in zip(("1 min 30 s", "2 h 4 min", "3 min 20 s"), found, strict=True)]
    assert "Ann" in found[1].text


def test_run_that_no_worker_has_begun_is_said_to_wait_in_the_queue() -> None:
    story = RunStory(run=replace(RUN, started_at=None))

    (found,) = explain(story.document("queued"), BEGAN + timedelta(seconds=90)).waited

    assert (found.state, found.text) == ("open", "The run has waited 1 min 30 s in the queue, and no worker began it.")


def test_tokens_and_calls_are_told_by_agent() -> None:
    story = two_tasks()
    story.done("t1", "shop.price")
    story.plan(planned("t1", "looker", "Look"), star="t2")
    story.start("t2/t1")
    for place in ("supervisor/1", "t1", "t1/review", "t2/t1", "t2/t1/review", "t2/supervisor/1", "t2/qa/1", "qa/1"):
        story.model(place, 10)

    cost = story.explained("running").cost

    assert {one.agent: one.tokens for one in cost.by_agent} == {
        "the supervisor": 20,
        SHOP: 10,
        "the reviewer": 20,
        "looker": 10,
        "the final answer": 20,
    }
    assert (cost.tokens, cost.model_calls, cost.tool_calls) == (80, 8, 1)
    assert [(one.tool_calls, one.tool_seconds) for one in cost.by_agent if one.agent == SHOP] == [(1, 1.5)]


def test_what_structure_does_not_judge_is_shown_to_be_looked_at() -> None:
    story = RunStory()
    tasks = [planned("t1", WRITER, "Write"), planned("t2", SHOP, "Order"), planned("t3", SHOP, "Pay")]
    story.plan(*tasks)
    story.start("t1")
    story.end("t1", "A text.")
    story.start("t2")
    story.call("t2", "shop.order", "Ordered.")
    story.verdict("t2", "REJECTED", "Too few.")
    story.end("t2", "Too few.", "rejected")
    skill = {"id": "s1", "task": "Pay {what}", "followed": True}
    story.fail("t3", "shop.pay", "No.", "tool_error")
    story.end("t3", "No.", "tool_error", skills=[skill])
    story.plan(*tasks, version=2)
    story.warn("llm_timeout")

    found = story.explained()

    assert [one.task for one in found.look_at] == ["t1", "t2", "t3", None]
    assert (
        found.look_at[0].text
        == f"The answer of {WRITER} in task t1 was text: no tool was called and nobody checked it."
    )
    assert "followed the skill “Pay {what}” (s1) and failed" in found.look_at[2].text
    assert "llm_timeout" in found.look_at[3].text


def test_team_that_answered_is_not_said_to_be_unchecked() -> None:
    story = RunStory()
    story.plan(planned("t1", "buyers", "Buy"))
    story.start("t1")
    story.plan(planned("t1", SHOP, "Buy"), star="t1")
    story.done("t1/t1", "shop.order")
    story.end("t1")

    assert story.explained().look_at == []
