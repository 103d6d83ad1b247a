"""Each cause rests on a code, a state or the order of events. What the run stories show as well is not repeated."""

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from brain.explanation.shape import CauseCode, Explanation
from tests.support.run_story import SHOP, WEATHER, WRITER, RunStory, planned

type Told = tuple[str, str | None]


def one_task(agent: str = SHOP) -> RunStory:
    story = RunStory()
    story.plan(planned("t1", agent, "Order a coat"))
    return story


def two_tasks() -> RunStory:
    story = RunStory()
    story.plan(planned("t1", SHOP, "Find the price"), planned("t2", SHOP, "Order it", "t1"))
    return story


def told(found: Explanation) -> list[Told]:
    assert found.cause == (found.causes[0] if found.causes else None)
    return [(one.code, one.task) for one in found.causes]


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("duplicate", "tool_failed"),
        ("invalid_arguments", "wrong_argument"),
        ("secret_in_arguments", "wrong_argument"),
        ("server_unavailable", "degraded_server"),
        ("memory_limit", "degraded_server"),
        ("removed", "changed_tool"),
        ("quarantined", "changed_tool"),
        ("switched_off", "switched_off"),
        ("over_limit", "limit_reached"),
        ("not_repeated", "effect_in_doubt"),
        ("not_approved", "refused_approval"),
        ("repeat_refused", "refused_approval"),
        ("a code of later", "tool_failed"),
    ],
)
def test_failed_call_is_the_cause_by_its_code(code: str, cause: str) -> None:
    story = one_task()
    call_id = story.fail("t1", "shop.order", "Not done.", code, args={"item": "coat"})

    found = story.explained("failed", "no_result")

    assert told(found) == [(cause, "t1")]
    assert found.cause
    assert [name for name in (SHOP, "shop.order", "coat", "t1", code) if name not in found.cause.text] == []
    assert ("call", call_id) in [(ref.kind, ref.id) for ref in found.cause.refs]


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("agent_unavailable", "agent_unavailable"),
        ("budget_exhausted", "lost_budget"),
        ("deadline_exceeded", "deadline_exceeded"),
        ("internal", "internal_error"),
        ("journal_diverged", "journal_diverged"),
        ("llm_invalid_response", "unreadable_model_output"),
        ("llm_connection_error", "model_unavailable"),
        ("llm_server_error", "model_unavailable"),
        ("outcome_unknown", "effect_in_doubt"),
        ("proof_failed", "build_failed"),
        ("runtime_failed", "runtime_failed"),
        ("runtime_unavailable", "runtime_failed"),
        ("unable", "unable_agent"),
        ("a code of later", "failed_task"),
    ],
)
def test_task_without_a_failed_call_is_explained_by_its_code(code: str, cause: str) -> None:
    story = one_task()
    story.start("t1")
    story.end("t1", "It did not work.", code)

    assert told(story.explained("failed", "no_result")) == [(cause, "t1")]


@pytest.mark.parametrize("ends", ["approved", "llm_timeout"])
def test_request_that_the_generalist_got_after_a_failure_is_explained_by_what_came_before(ends: str) -> None:
    story = one_task()
    story.fail("t1", "shop.order", "Not done.", "tool_error")
    story.warn("llm_timeout")
    story.warn("unplanned")
    story.plan(planned("t2", WRITER, "Do it all."), version=2)
    story.start("t2")
    story.end("t2", code="" if ends == "approved" else ends)

    found = story.explained("succeeded" if ends == "approved" else "failed", "" if ends == "approved" else "no_result")

    assert told(found) == [("tool_failed", "t1"), ("model_unavailable", None)]


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("not_granted", "not_allowed"),
        ("switched_off", "switched_off"),
        ("server_unavailable", "degraded_server"),
        ("agent_unavailable", "agent_unavailable"),
        ("outcome_unknown", "effect_in_doubt"),
        ("limit_reached", "limit_reached"),
    ],
)
def test_task_that_could_not_be_planned_is_explained_by_its_code(code: str, cause: str) -> None:
    story = RunStory()
    story.plan()
    story.leave_out("t1", "harbour", "Find a berth", code)

    found = story.explained("failed", "no_result")

    assert told(found) == [(cause, "t1")]
    assert found.cause
    assert "harbour" in found.cause.text


@pytest.mark.parametrize(
    ("status", "code", "cause"),
    [
        ("parked", "parked", "parked_run"),
        ("failed", "internal", "internal_error"),
        ("failed", "journal_diverged", "journal_diverged"),
        ("failed", "runtime_unavailable", "runtime_failed"),
    ],
)
def test_end_from_outside_is_the_only_cause_of_what_it_cut_off(status: str, code: str, cause: str) -> None:
    story = two_tasks()
    story.start("t1")
    story.begin_call("t1", "shop.price")
    story.end("t1", "It was cut off.", code)

    found = story.explained(status, code)

    assert told(found) == [(cause, None)]
    assert found.cause
    assert "task t1" in found.cause.text


def unanswered(kind: str, state: str) -> RunStory:
    story = RunStory()
    story.ask(kind, state, message="Which coat?")
    story.plan()
    return story


def replanning_without_a_model() -> RunStory:
    story = two_tasks()
    story.fail("t1", "shop.price", "No.", "tool_error")
    story.warn("llm_server_error")
    return story


def second_answer_refused() -> RunStory:
    story = one_task()
    story.start("t1")
    story.call("t1", "shop.order", "The arguments aren't JSON.", "invalid_arguments")
    story.write("t1", "", malformed=[0])
    story.end("t1", "The arguments aren't JSON.", "invalid_arguments")
    return story


def call_in_doubt() -> RunStory:
    story = one_task()
    story.fail("t1", "shop.order", "No answer came.", "timeout", state="in_doubt")
    return story


def withdrawn_approval() -> RunStory:
    story = one_task()
    story.start("t1")
    call = {"name": "shop.order", "call_id": "t1.0.0"}
    story.ask("approval", "cancelled", "t1", call=call, answered_by="Ann")
    story.call("t1", "shop.order", "It was not approved.", "not_approved")
    story.end("t1", "It was not approved.", "not_approved")
    return story


def rejected_after_an_error_of_another_tool() -> RunStory:
    story = one_task()
    story.start("t1")
    story.call("t1", "shop.price", "No price.", "tool_error")
    story.verdict("t1", "REJECTED", "No price.")
    story.start("t1")
    story.call("t1", "shop.order", "Ordered 1 coat.")
    story.verdict("t1", "REJECTED", "Without a price.")
    story.end("t1", "shop.price failed.", "tool_error")
    return story


def member_of_a_team() -> RunStory:
    story = one_task("buyers")
    story.start("t1")
    story.plan(planned("t1", SHOP, "Buy"), planned("t2", SHOP, "Pay", "t1"), star="t1")
    story.fail("t1/t1", "shop.order", "Sold out.", "tool_error")
    story.end("t1", "Sold out.", "tool_error")
    return story


def team_without_its_member() -> RunStory:
    story = one_task("buyers")
    story.start("t1")
    story.plan(star="t1")
    story.leave_out("t1/t1", SHOP, "Buy", "server_unavailable")
    story.end("t1", "It is away.", "unable")
    return story


def first_try_then_another_agent() -> RunStory:
    story = one_task()
    story.fail("t1", "shop.order", "No answer.", "timeout")
    story.plan(planned("t1", WRITER, "Order a coat"), version=2)
    story.start("t1.2")
    story.end("t1.2", "I can't order.", "unable")
    return story


def trial_of_a_team() -> RunStory:
    story = one_task("architect")
    story.start("t1")
    story.plan(planned("t1", SHOP, "Try it"), star="t1.case1")
    story.fail("t1.case1/t1", "shop.order", "Sold out.", "tool_error")
    story.end("t1", "The proof failed.", "proof_failed")
    return story


def doubtful_call_of_an_approved_task() -> RunStory:
    story = one_task()
    story.start("t1")
    story.call("t1", "shop.order", "No answer came.", "timeout", state="in_doubt")
    story.call("t1", "shop.price", "80")
    story.end("t1")
    return story


def reader_of_a_deleted_result() -> RunStory:
    story = one_task()
    story.fail("t1", "read_artifact", "It was deleted.", "removed")
    return story


@pytest.mark.parametrize(
    ("story", "end", "causes"),
    [
        (replanning_without_a_model, ("failed", "x"), [("tool_failed", "t1"), ("model_unavailable", None)]),
        (RunStory, ("failed", "empty_plan"), [("empty_plan", None)]),
        (RunStory, ("failed", "a code of later"), [("failed_run", None)]),
        (second_answer_refused, ("failed", "no_result"), [("unreadable_model_output", "t1")]),
        (call_in_doubt, ("failed", "no_result"), [("effect_in_doubt", "t1")]),
        (withdrawn_approval, ("failed", "no_result"), [("refused_approval", "t1")]),
        (rejected_after_an_error_of_another_tool, ("failed", "no_result"), [("rejected_result", "t1")]),
        (member_of_a_team, ("failed", "no_result"), [("tool_failed", "t1/t1")]),
        (team_without_its_member, ("failed", "no_result"), [("degraded_server", "t1/t1")]),
        (first_try_then_another_agent, ("failed", "x"), [("call_timed_out", "t1"), ("unable_agent", "t1")]),
        (trial_of_a_team, ("failed", "no_result"), [("build_failed", "t1")]),
        (reader_of_a_deleted_result, ("failed", "no_result"), [("tool_failed", "t1")]),
    ],
)
def test_cause_is_told_by_structure(story: Callable[[], RunStory], end: tuple[str, str], causes: list[Told]) -> None:
    assert told(story().explained(*end)) == causes


@pytest.mark.parametrize(
    ("story", "cause"),
    [
        (RunStory, ("unserved_part", None)),
        (lambda: unanswered("clarification", "resolved"), ("unserved_part", None)),
        (lambda: unanswered("clarification", "expired"), ("unanswered_question", None)),
        (lambda: unanswered("clarification", "cancelled"), ("unanswered_question", None)),
        (doubtful_call_of_an_approved_task, ("effect_in_doubt", "t1")),
    ],
)
def test_missing_part_without_a_task_is_told_by_what_kept_it_from_one(
    story: Callable[[], RunStory], cause: Told
) -> None:
    missing = [{"part": "Fly", "reason": "No agent can fly."}]

    assert told(story().explained(degraded=missing)) == [cause]


def test_first_failure_comes_first_and_what_depends_on_it_follows() -> None:
    story = RunStory()
    tasks = [
        planned("t1", SHOP, "Find the price"),
        planned("t2", SHOP, "Order it", "t1"),
        planned("t3", WEATHER, "Look"),
    ]
    story.plan(*tasks)
    story.fail("t3", "weather.now", "No.", "timeout")
    story.fail("t1", "shop.price", "No.", "tool_error")

    found = story.explained("failed", "no_result")

    assert told(found) == [("call_timed_out", "t3"), ("tool_failed", "t1")]
    assert [(one.task, one.followed_from) for one in found.failures] == [("t3", None), ("t1", None), ("t2", "t1")]
    assert "it depends on t1, which failed" in found.failures[-1].text


@pytest.mark.parametrize("code", ["limit_reached", "circuit_breaker"])
def test_limit_that_ended_planning_is_told_after_the_failure_before_it(code: str) -> None:
    story = two_tasks()
    story.fail("t1", "shop.price", "No.", "tool_error")
    story.warn(code)

    assert told(story.explained("failed", "no_result")) == [("tool_failed", "t1"), ("limit_reached", None)]


def test_task_that_only_time_kept_from_beginning_is_told() -> None:
    story = two_tasks()
    story.done("t1")

    found = story.explained(degraded=[{"part": "Order it", "reason": "The run's time ran out."}])

    assert told(found) == [("deadline_exceeded", "t2")]


def test_run_that_goes_on_is_explained_as_far_as_it_is() -> None:
    story = two_tasks()
    story.fail("t1", "shop.price", "No.", "tool_error")

    assert told(story.explained("running")) == [("tool_failed", "t1")]


def test_guide_has_every_code_of_a_cause() -> None:
    codes = {code for group in get_args(CauseCode.__value__) for code in get_args(group.__value__)}
    guide = (Path(__file__).parents[4] / "docs/guides/explaining-runs.md").read_text()

    assert "tool_failed" in codes
    assert {code for code in codes if f"`{code}`" not in guide} == set()
