"""The supervisor node: what it dispatches without a model, what it sends back to one, and when it stops asking."""

from dataclasses import replace

import pytest

from brain.interrupts.budget import OUT_OF_TIME, OUT_OF_TOKENS
from brain.state import GraphState, after, initial_state
from starling.core.errors import LLMConnectionError, LLMInvalidResponse
from starling.core.teams.stars import StarSpec
from tests.support.in_memory_run import make_execution, make_run
from tests.support.model_documents import decision_json, task
from tests.support.supervisor_steps import (
    AGENTS,
    FAILED,
    REQUEST,
    Sessions,
    decide,
    outcome,
    planned,
    record,
    step,
    supervisor,
)

GARBAGE = '{"plan": "none"}'
SATISFIED = decision_json(is_request_satisfied=True)
TO_BENCH, TO_GENERALIST = decision_json(task("t1", "bench")), decision_json(task("t1", "generalist"))
AWAY = LLMConnectionError("scripted:small", "not today")
ALL_FAILED = planned(record("t1", "failed"), results=[outcome("t1", "failed")])
FAILED_AND_LEFT = planned(record("t1", "failed"), record("t2"), results=[outcome("t1", "failed")])


async def test_plan_dispatches_ready_tasks_only_and_warms_their_servers() -> None:
    sessions = Sessions()
    plan = decision_json(task("t1", "bench"), task("t2", "generalist"), task("t3", "bench", after=["t1"]))

    update, execution = await decide(plan, node=supervisor(sessions))

    assert update["next_step"] == ["t1", "t2"]
    assert [(item["id"], item["status"]) for item in update["tasks"]] == [
        *(("t1", "running"), ("t2", "running"), ("t3", "pending")),
    ]
    assert (sessions.warmed, execution.kinds) == (["bench"], ["plan", "route"])


async def test_dispatch_is_limited_to_the_parallel_tasks() -> None:
    plan = decision_json(*(task(f"t{n}", "generalist") for n in range(3)))

    update, _ = await decide(plan, node=supervisor(parallel_tasks=2))

    assert update["next_step"] == ["t0", "t1"]


async def test_ready_task_of_a_sound_plan_is_dispatched_without_a_model() -> None:
    update, execution = await decide(
        state=planned(record("t1", "approved"), record("t2", "pending", "t1"), results=[outcome("t1")])
    )

    assert (update["next_step"], execution.model.requests) == (["t2"], [])


async def test_finished_plan_goes_to_qa_without_a_model() -> None:
    update, execution = await decide(state=planned(record("t1", "approved"), results=[outcome("t1")]))

    assert (update, execution.model.requests) == ({"next_step": [], "degraded": []}, [])


async def test_failed_task_is_decided_again_with_its_reason_in_the_prompt() -> None:
    update, execution = await decide(TO_GENERALIST, state=FAILED)

    assert (update["next_step"], update["routing"]["decisions"]) == (["t1"], 2)
    assert "It broke." in execution.model.prompts[0]


async def test_uncertain_outcome_is_marked_in_the_prompt() -> None:
    unknown = planned(record("t1", "failed"), results=[outcome("t1", "failed", unknown=True)])

    _, execution = await decide(SATISFIED, state=unknown)

    assert '"outcome_unknown": true' in execution.model.prompts[0]


async def test_same_failure_is_not_decided_twice() -> None:
    update, execution = await decide(
        state=planned(record("t1", "failed"), results=[outcome("t1", "failed")], failures_seen=1)
    )

    assert [part["reason"] for part in update["degraded"]] == ["It broke."]
    assert execution.model.requests == []


async def test_satisfied_decision_finishes_and_names_failed_tasks() -> None:
    partly = planned(record("t1", "failed"), record("t2", "approved"), results=[outcome("t1", "failed"), outcome("t2")])

    update, _ = await decide(SATISFIED, state=partly)

    assert update["next_step"] == []
    assert [(part["part"], part["reason"]) for part in update["degraded"]] == [("do t1", "It broke.")]


async def test_limit_of_decisions_ends_planning_with_a_warning() -> None:
    update, execution = await decide(state=FAILED, run=make_run(supervisor_calls=1))

    assert (update["next_step"], execution.warnings, execution.model.requests) == ([], ["limit_reached"], [])


async def test_ready_tasks_go_on_at_the_limit_of_decisions_beside_one_that_waits_for_a_decision() -> None:
    first, undecided = record("t1", "approved"), record("t3", "pending", "t1")
    undecided["agent"] = ""
    state = planned(first, record("t2", "pending", "t1"), undecided, results=[outcome("t1")])
    done = planned(first, record("t2", "approved", "t1"), undecided, results=[outcome("t1"), outcome("t2")])

    update, execution = await decide(state=state, run=make_run(supervisor_calls=1))
    end, ended = await decide(state=done, run=make_run(supervisor_calls=1))

    assert (update["next_step"], execution.warnings) == (["t2"], [])
    assert ([part["part"] for part in end["degraded"]], ended.warnings) == (["do t3"], ["limit_reached"])


async def test_plan_with_too_many_tasks_is_sent_back_and_then_cut() -> None:
    many = decision_json(*(task(f"t{n}", "generalist", after=["t1"] if n > 2 else []) for n in range(1, 6)))

    update, execution = await decide(many, many, node=supervisor(tasks_per_plan=3))

    most = "A plan may have at most 3 tasks (limits.tasks_per_plan)."
    assert f"{most} Plan fewer tasks." in execution.model.prompts[1]
    assert [item["id"] for item in update["tasks"]] == ["t1", "t2", "t3"]
    assert [(part["task_id"], part["reason"]) for part in update["degraded"]] == [("t4", most), ("t5", most)]
    assert execution.warnings == ["llm_invalid_response", "limit_reached"]


async def test_renewed_task_takes_no_more_room_in_the_plan() -> None:
    update, execution = await decide(TO_GENERALIST, state=FAILED, node=supervisor(tasks_per_plan=1))

    assert (update["next_step"], execution.warnings) == (["t1"], [])


async def test_circuit_breaker_stops_at_the_second_repeat_without_progress() -> None:
    again = decision_json(task("t1", "bench"), plan=["look"])
    state, execution = initial_state(REQUEST), make_execution(again, again, again, agents=AGENTS)
    dispatched: list[list[str]] = []

    for number in range(1, 4):
        update = await step(supervisor(), state, execution)
        dispatched.append(update["next_step"])
        failed = [outcome("t1", "failed")] * number
        state = after(state, update | {"tasks": [record("t1", "failed")], "results": failed})

    assert dispatched == [["t1"], ["t1"], []]
    assert execution.warnings == ["circuit_breaker"]


async def test_nothing_is_decided_after_the_deadline() -> None:
    update, _ = await decide(state=planned(record("t1")), seconds=0.0)

    assert [part["reason"] for part in update["degraded"]] == [OUT_OF_TIME]


async def test_nothing_is_decided_without_budget() -> None:
    execution = make_execution(agents=AGENTS)
    execution.context.budget.meter.exhausted = True

    update = await step(supervisor(), planned(record("t1")), execution)

    assert [part["reason"] for part in update["degraded"]] == [OUT_OF_TOKENS]


@pytest.mark.parametrize("wrong", [GARBAGE, "", "certainly!", decision_json(task("t1", "a"), task("t1", "b"))])
async def test_invalid_decision_is_repaired_once(wrong: str) -> None:
    update, execution = await decide(wrong, decision_json(reply="Hello."))

    repair = execution.model.requests[1].messages
    assert [message.role for message in repair] == ["system", "user", "assistant", "user"]
    assert "<validation_error>" in repair[-1].content
    assert (update["reply"], execution.warnings) == ("Hello.", ["llm_invalid_response"])


@pytest.mark.parametrize(
    ("first", "told"),
    [
        pytest.param(
            LLMInvalidResponse("scripted:small", "the answer was cut off at the token limit"),
            "<validation_error>the answer was cut off at the token limit",
            id="unreadable",
        ),
        pytest.param(decision_json(), "The decision is empty. Give the request to agents", id="empty"),
    ],
)
async def test_decision_is_sent_back_with_its_fault(first: str | Exception, told: str) -> None:
    update, execution = await decide(first, TO_BENCH)

    assert told in execution.model.prompts[1]
    assert update["next_step"] == ["t1"]


@pytest.mark.parametrize(
    ("answers", "failure", "code", "warnings"),
    [
        pytest.param([AWAY], "not today", "llm_connection_error", ["llm_connection_error"], id="no answer"),
        pytest.param(
            [GARBAGE] * 2,
            "The request couldn't be planned. Model scripted:small: two answers in a row",
            "llm_invalid_response",
            ["llm_invalid_response"] * 2,
            id="invalid twice",
        ),
        pytest.param(
            [decision_json(), SATISFIED],
            "The request couldn't be planned. The model was asked twice, and named no task",
            "empty_plan",
            None,
            id="empty twice",
        ),
    ],
)
async def test_request_that_could_not_be_planned_is_a_failure_with_its_reason(
    answers: list[str | Exception], failure: str, code: str, warnings: list[str] | None
) -> None:
    update, execution = await decide(*answers, node=replace(supervisor(), star=StarSpec(name="disks")))

    assert failure in update["failure"]
    assert update["failure_code"] == code
    assert execution.warnings == warnings or warnings is None
    assert not update.get("next_step")


@pytest.mark.parametrize("answers", [[AWAY], [GARBAGE] * 2], ids=["away", "garbage"])
async def test_without_the_supervisors_model_the_generalist_gets_the_request_once(
    answers: list[str | Exception],
) -> None:
    first, execution = await decide(*answers)
    failed = after(initial_state(REQUEST), first | {"results": [outcome("t1", "failed")]})
    failed = after(failed, {"tasks": [{**failed["tasks"][0], "status": "failed"}]})

    second = await step(supervisor(), failed, execution)

    assert [(task["agent"], task["task"]) for task in first["tasks"]] == [("generalist", REQUEST)]
    assert (first["next_step"], second["next_step"]) == (["t1"], [])
    assert first["assumptions"] == ["The request could not be planned, so no agent with tools was asked."]
    assert (second["degraded"][0]["task_id"], len(execution.model.requests)) == ("t1", len(answers))


async def test_without_the_supervisors_model_the_generalist_gets_the_request_beside_tasks_that_failed() -> None:
    update, _ = await decide(AWAY, state=ALL_FAILED)

    tasks = [(task["id"], task["agent"], task["task"]) for task in update["tasks"] if task["status"] == "running"]
    assert tasks == [("t2", "generalist", REQUEST)]
    assert "other" in update["assumptions"][0]


async def test_without_the_supervisors_model_ready_tasks_go_on_and_nobody_is_asked_who_failed() -> None:
    update, execution = await decide(AWAY, state=FAILED_AND_LEFT)

    assert (update["next_step"], update["routing"]["failures_seen"]) == (["t2"], 1)
    assert execution.warnings == ["llm_connection_error"]


@pytest.mark.parametrize(
    "state", [initial_state(REQUEST), ALL_FAILED, FAILED_AND_LEFT], ids=["nothing planned", "all failed", "ready"]
)
async def test_what_went_on_without_the_supervisors_model_is_the_same_when_it_is_repeated(state: GraphState) -> None:
    first, execution = await decide(AWAY, state=state)

    second, repeated = await decide(TO_BENCH, state=state, after=execution)

    assert second == first
    assert (repeated.kinds, repeated.model.requests) == ([], [])


async def test_nothing_new_begins_without_the_supervisors_model_once_the_budget_is_used_up() -> None:
    execution = make_execution(AWAY, agents=AGENTS)
    execution.context.budget.meter.exhausted = True

    update = await step(supervisor(), initial_state(REQUEST), execution)

    assert (update["next_step"], update["failure_code"]) == ([], "llm_connection_error")


async def test_failed_decision_with_approved_results_is_no_failure() -> None:
    partly = planned(record("t1", "approved"), record("t2", "failed"), results=[outcome("t1"), outcome("t2", "failed")])

    update, execution = await decide(AWAY, state=partly)

    assert (update["failure"], execution.warnings) == ("", ["llm_connection_error"])


async def test_decision_that_leaves_a_failed_task_out_is_not_empty() -> None:
    update, _ = await decide(decision_json(), state=FAILED)

    assert [part["reason"] for part in update["degraded"]] == ["It broke."]
    assert "failure" not in update


async def test_unknown_names_are_sent_back_and_the_rest_counts_if_the_repair_fails() -> None:
    wrong = decision_json(task("t1", "nobody", "book a flight"), task("t2", "bench"))

    update, execution = await decide(wrong, "", state="Book a flight, and how is the disk?")

    known = "The agents are: architect, away, bench, coder, generalist."
    assert f"There is no agent 'nobody'. {known}" in execution.model.prompts[1]
    [left_out] = update["degraded"]
    assert (update["next_step"], left_out["part"], left_out["code"]) == (["t2"], "book a flight", "unknown_agent")


async def test_part_that_is_served_later_is_not_degraded_any_more() -> None:
    known = [{"part": "do t1", "reason": "There is no agent 'nobody'.", "task_id": "t1"}]

    update, _ = await decide(TO_BENCH, state=after(FAILED, {"degraded": known}))

    assert (update["next_step"], update["degraded"]) == (["t1"], [])
