"""A success is not repeated because it was rejected: what the servers received, and who was asked."""

import re
from typing import Any

import pytest

from starling.core.agents import Persona
from starling.core.teams.spec import TeamSpec
from starling.core.teams.stars import Member, StarSpec
from starling.infra.postgres.audit import Actor
from tests.integration.effects.conftest import (
    APPROVED,
    CODE,
    PIZZERIA,
    REASON,
    REJECTED,
    SLOW,
    STRICT,
    Kitchen,
    ask_for,
)
from tests.support.interrupted_runs import execute_run
from tests.support.model_script import Answer
from tests.support.platform import CALLER, RunStream, decision, task

TOFU, MILK = "order tofu", "order milk"
WORDS = Answer("It is ordered.")
T1, T2, T3 = (task(name, PIZZERIA) for name in ("t1", "t2", "t3"))


def codes(stream: RunStream) -> list[str | None]:
    """The codes of the approvals that a run asked for."""
    return [event.get("code", "no code") for event in stream.of("approval_required")]


def reused(stream: RunStream) -> list[str]:
    """The results of the calls that were not sent, as an earlier success was used."""
    return [event["result"] for event in stream.of("tool_result") if event["state"] == "reused"]


def assert_outcome(kitchen: Kitchen, stream: RunStream, outcome: str, first: str, second: str) -> None:
    """Check that the call `first` was made, and what became of the call `second` of another attempt."""
    made = [first] if outcome == "reused" else sorted([first, second])
    assert sorted(kitchen.received) == made
    assert (stream.status, codes(stream)) == ("succeeded", [CODE] if outcome == "asked" else [])


@pytest.mark.parametrize(
    ("tool", "equal", "different"),
    [
        ("order", "reused", "asked"),  # unsafe
        ("put", "reused", "made"),  # idempotent
        ("menu", "made", "made"),  # read
        ("say", "reused", "made"),  # not declared, without annotations
        ("peek", "made", "made"),  # not declared, readOnlyHint true
        ("wipe", "reused", "asked"),  # not declared, destructiveHint true
        ("amend", "reused", "asked"),  # not declared, readOnlyHint false
    ],
)
@pytest.mark.parametrize("repeated", [True, False], ids=["equal", "different"])
async def test_call_after_a_rejected_success_is_reused_asked_about_or_made_by_its_effect(
    kitchen: Kitchen, tool: str, equal: str, different: str, *, repeated: bool
) -> None:
    first, second = f"{tool} tofu", f"{tool} {'tofu' if repeated else 'milk'}"
    outcome = equal if repeated else different
    kitchen.plan(ask_for(first), ask_for(second))

    stream = await kitchen.run(*["approve"] * (outcome == "asked"))

    assert_outcome(kitchen, stream, outcome, first, second)
    if outcome == "reused":
        first_result, again = stream.of("tool_result")
        assert (again["status"], again["state"]) == ("succeeded", "reused")
        assert again["result"].startswith(first_result["result"])
        note = again["result"].removeprefix(first_result["result"])
        assert note
        assert ("server effects" in note and "--propose" in note) == (tool == "say")


# The decisions; the calls of each answer of each task ("": words), the reviewer's verdicts on it; what becomes of the
# call "second" after "first", where both are equal and where they differ.
NO, YES = REJECTED, APPROVED
AFTER_T1 = task("t2", PIZZERIA, after=["t1"])
ATTEMPTS: dict[str, tuple[list[Answer], dict[str, tuple[list[str], list[Answer]]], str, str]] = {
    "try of a failed task": (
        [decision(T1), decision(T1)], {"t1": (["first", "first", "second"], [NO, NO, YES])}, "reused", "asked"
    ),
    "task after a failed one": (
        [decision(T1), decision(T2)], {"t1": (["first", ""], [NO]), "t2": (["second"], [YES])}, "reused", "asked"
    ),
    "task after a failed one, the success was approved": (
        [decision(T1, T2), decision(T3)],
        {"t1": (["first"], [YES]), "t2": ([""], [NO]), "t3": (["second"], [YES])}, "reused", "made"
    ),
    "first attempt, of two tasks": (
        [decision(T1, AFTER_T1)], {"t1": (["first"], [YES]), "t2": (["second"], [YES])}, "made", "made"
    ),
    "first attempt, beside a task that fails": (
        [decision(T1, T2)], {"t1": (["first", ""], [NO]), "t2": (["second"], [YES])}, "made", "made"
    ),
    "first attempt, in its next answer": ([decision(T1)], {"t1": (["first more", "second"], [YES])}, "made", "made"),
}  # fmt: skip


@pytest.mark.parametrize("attempts", ATTEMPTS)
@pytest.mark.parametrize("repeated", [True, False], ids=["equal", "different"])
async def test_only_a_later_attempt_reuses_or_asks(kitchen: Kitchen, attempts: str, *, repeated: bool) -> None:
    decisions, tasks, *outcomes = ATTEMPTS[attempts]
    outcome, calls = outcomes[not repeated], {"first": TOFU, "second": TOFU if repeated else MILK}
    kitchen.script.supervisor(*decisions, decision())
    for name, (wanted, verdicts) in tasks.items():
        asked = [(calls[one.split()[0]], "more" in one) if one else None for one in wanted]
        kitchen.script.agent(name, *(ask_for(one[0], more=one[1]) if one else WORDS for one in asked))
        kitchen.script.reviewer(*verdicts, of=name)
    kitchen.script.qa(Answer("It is done [1]."))

    stream = await kitchen.run(*["approve"] * (outcome == "asked"))

    assert_outcome(kitchen, stream, outcome, TOFU, calls["second"])


async def test_different_call_after_one_whose_result_could_not_be_used_is_asked_about(kitchen: Kitchen) -> None:
    kitchen.plan(ask_for(f"{TOFU} malformed"), ask_for(MILK), verdicts=[APPROVED])

    stream = await kitchen.run("approve")

    assert_outcome(kitchen, stream, "asked", TOFU, MILK)
    assert "can't be used" in stream.of("approval_required")[0]["message"]


@pytest.mark.parametrize("said", ["refuse", "expire"])
async def test_repeat_that_nobody_approves_is_not_sent_and_the_run_succeeds_with_what_is_done(
    kitchen: Kitchen, said: str
) -> None:
    kitchen.plan(ask_for(TOFU), ask_for(MILK), WORDS)

    stream = await kitchen.run(said)

    assert kitchen.received == [TOFU]
    assert (stream.status, codes(stream)) == ("succeeded", [CODE])


async def test_question_about_a_repeat_says_what_was_done_why_it_was_rejected_and_what_would_be_done(
    kitchen: Kitchen,
) -> None:
    kitchen.plan(ask_for(TOFU), ask_for(MILK))
    key = await kitchen.platform.accept("Get what is needed.")
    await execute_run(kitchen.platform, key)

    run = await kitchen.read(f"/v1/runs/{key.id}")
    listed = await kitchen.read(f"/v1/approvals?run_id={key.id}")

    assert kitchen.received == [TOFU]
    for asked in (run["interrupts"], listed["interrupts"]):
        assert [one.get("code") for one in asked] == [CODE]
        assert (asked[0]["call"]["name"], asked[0]["call"]["args"]) == ("pizzeria.order", {"what": "milk"})
        assert all(part in asked[0]["message"] for part in ("tofu", REASON, "milk")), asked[0]["message"]


@pytest.mark.parametrize(("second", "expected"), [(TOFU, [None]), (MILK, [None, CODE])], ids=["equal", "different"])
async def test_question_about_a_repeat_takes_the_place_of_the_tools_own_approval(
    kitchen: Kitchen, second: str, expected: list[str | None]
) -> None:
    kitchen.plan(ask_for(TOFU), ask_for(second), of=STRICT)

    stream = await kitchen.run(*["approve"] * len(expected))

    assert codes(stream) == expected
    assert kitchen.received == [TOFU, second][: len(expected)]


@pytest.mark.parametrize("crashed", [False, True])
async def test_each_success_is_used_once_in_an_attempt_and_a_resumed_run_repeats_the_choice(
    kitchen: Kitchen, *, crashed: bool
) -> None:
    again = ask_for(TOFU, more=True)
    held = [Answer("", hold="for ever")] * crashed  # follows the first call of the second attempt
    kitchen.plan(again, ask_for(TOFU), again, *held, again, ask_for(TOFU))
    key = await kitchen.platform.accept("Get what is needed.")
    if crashed:
        async with kitchen.platform.executing(key):
            await kitchen.platform.model.received(6)

    stream = await kitchen.run("approve", key=key)

    assert kitchen.received == [TOFU] * 3
    assert [re.findall(r"number (\d)", one)[0] for one in reused(stream)] == ["1", "2"]
    assert codes(stream) == [CODE]


async def test_success_that_is_always_rejected_is_made_once_and_named_in_the_reply(kitchen: Kitchen) -> None:
    kitchen.script.supervisor(decision(T1), decision(T1), decision())
    kitchen.script.agent("t1", ask_for(TOFU))
    kitchen.script.reviewer(REJECTED)

    stream = await kitchen.run()

    assert (kitchen.received, stream.status) == ([TOFU], "failed")
    assert re.search(r"order\b.*tofu", stream.reply)


@pytest.mark.parametrize(
    ("runtime", "second", "outcome"),
    [("native", TOFU, "reused"), ("native", MILK, "asked"), ("crewai", TOFU, "reused")],
)
async def test_second_attempt_of_a_team_does_not_repeat_the_successes_of_the_first(
    kitchen: Kitchen, runtime: Any, second: str, outcome: str
) -> None:
    persona = Persona(role="waiter", goal="order things")
    waiter = Member(name="waiter", persona=persona, server="pizzeria", tools=("pizzeria.order",), runtime=runtime)
    await kitchen.platform.activate(StarSpec(name="staff", purpose="Orders.", members=(waiter,)))
    to_waiter = decision(task("t1", "waiter"))
    kitchen.script.supervisor(decision(task("t3", "staff")), to_waiter, to_waiter, decision())
    words = [WORDS] if runtime == "crewai" else []
    kitchen.script.agent("t1", ask_for(TOFU), *words, ask_for(second), *words)
    kitchen.script.reviewer(APPROVED, of="t1")
    kitchen.script.reviewer(REJECTED, APPROVED, of="t3")
    kitchen.script.qa(Answer("It is done [1]."))

    stream = await kitchen.run(*["approve"] * (outcome == "asked"))

    assert_outcome(kitchen, stream, outcome, TOFU, second)


async def test_equal_idempotent_calls_of_an_attempt_have_keys_of_their_own(kitchen: Kitchen) -> None:
    kitchen.plan(ask_for("put salt", more=True), ask_for("put salt"), verdicts=[APPROVED])

    await kitchen.run()

    assert kitchen.received == ["put salt"] * 2
    assert len(set(kitchen.keys)) == 2


@pytest.mark.parametrize("again", ["attempt", "task"])
async def test_idempotent_call_in_doubt_is_repeated_under_its_own_key(kitchen: Kitchen, again: str) -> None:
    lost = ask_for("put salt lost")
    kitchen.script.supervisor(decision(task("t1", SLOW)), decision(task("t2", SLOW)), decision())
    kitchen.script.agent("t1", lost, lost if again == "attempt" else WORDS)
    kitchen.script.agent("t2", lost)
    kitchen.script.reviewer(APPROVED)
    kitchen.script.qa(Answer("It is done [1]."))

    stream = await kitchen.run()

    assert kitchen.received == ["put salt"] * 2
    assert len(set(kitchen.keys)) == 1
    assert stream.status == "succeeded"


@pytest.mark.parametrize("again", ["attempt", "try"])
async def test_words_after_successes_of_earlier_attempts_are_reviewed_with_those_calls(
    kitchen: Kitchen, again: str
) -> None:
    tried = again == "try"
    kitchen.script.supervisor(*[decision(T1)] * (1 + tried), decision())
    kitchen.script.agent("t1", ask_for(TOFU), *[ask_for(TOFU)] * tried, WORDS)
    kitchen.script.reviewer(REJECTED, *[REJECTED] * tried, APPROVED)
    kitchen.script.qa(Answer("It is done [1]."))

    stream = await kitchen.run()

    assert (kitchen.received, stream.status) == ([TOFU], "succeeded")
    review = [body for body in kitchen.shown("You review the result of a task") if "It is ordered." in body][-1]
    assert re.search(r"order\b.*tofu", review, re.DOTALL)


@pytest.mark.parametrize(
    ("request_of", "below"),
    [('<task id="t1">', "<task "), ("You supervise agents", "<current_plan>")],
    ids=["the agent", "the supervisor"],
)
async def test_reader_of_a_rejection_is_told_what_is_already_done(
    kitchen: Kitchen, request_of: str, below: str
) -> None:
    kitchen.plan(ask_for(TOFU), WORDS, verdicts=[REJECTED])

    await kitchen.run()

    shown = kitchen.shown(request_of)[1].partition(below)[2]
    assert re.search(r"order\b.*tofu", shown, re.DOTALL), shown


async def test_calls_of_a_trial_are_neither_reused_nor_asked_about(kitchen: Kitchen) -> None:
    case = {"id": "first", "input": "Order tofu.", "must_call": ["pizzeria.order"]}
    does = {"role": "waiter", "goal": "Order.", "server": "pizzeria", "tools": ["pizzeria.order"]}
    waiter = {"name": "waiter", "runtime": "native", **does}
    spec = {
        "name": "staff",
        "purpose": "Orders.",
        "members": [waiter],
        "examples": [case, case | {"id": "second", "input": "Get tofu."}],
    }
    again = ask_for(TOFU, more=True)
    kitchen.script.supervisor(decision(task("t1", "waiter")))
    kitchen.script.agent("t1", ask_for(TOFU), again, ask_for(MILK))
    kitchen.script.reviewer(REJECTED, APPROVED)
    kitchen.script.qa(Answer("It is ordered."))
    teams = kitchen.platform.services.teams
    await teams.add(CALLER, "staff", TeamSpec.model_validate(spec), Actor.local("test"))

    stream = await kitchen.run(key=(await kitchen.platform.services.builds.proof(CALLER, "staff", None)).key)

    report = await teams.proof(CALLER.tenant, "staff", 1)
    assert [call.source for call in report.cases[0].trial.calls] == ["simulated"] * 3
    assert (kitchen.received, reused(stream)) == ([], [])


async def test_calls_of_a_task_are_limited_over_all_its_attempts_and_tries(opened: Any) -> None:
    async with opened(tool_calls_per_task=3) as kitchen:
        kitchen.script.supervisor(decision(T1), decision(T1), decision())
        kitchen.script.agent("t1", *(ask_for(f"menu {dish}", f"menu {dish}{dish}") for dish in "abc"))
        kitchen.script.reviewer(REJECTED)

        await kitchen.run()

    assert sorted(kitchen.received) == ["menu a", "menu aa", "menu b"]
