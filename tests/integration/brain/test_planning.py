"""The supervisor: asked where something is to decide, and a bad plan never passes for a good one."""

import pytest
from psycopg import AsyncConnection

from tests.integration.brain.conftest import Open
from tests.support.model_script import Answer
from tests.support.platform import BENCH, SHOP, Platform, ScriptedModel, calls, decision, task, verdict

LOOK = calls(("look", {"thing": "disk"}))
GARBAGE = Answer('{"plan": "none"}')


async def test_ready_tasks_and_a_finished_plan_need_no_model_call(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(task("t1", BENCH), task("t2", BENCH, after=["t1"])))
    script.agent("t1", LOOK)
    script.agent("t2", LOOK)
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("All is fine [1][2]."))

    stream = await platform.ask("How is the disk?")

    assert (stream.status, stream.reply) == ("succeeded", "All is fine [1][2].")
    assert len(platform.requests_containing("You are the supervisor")) == 1
    assert [[item["task_id"] for item in route["selected_agents"]] for route in stream.of("route")] == [["t1"], ["t2"]]


async def test_a_task_sees_the_results_that_it_depends_on(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(task("t1", BENCH), task("t2", BENCH), task("t3", "generalist", after=["t1"])))
    script.agent("t1", LOOK)
    script.agent("t2", calls(("look", {"thing": "door"})))
    script.agent("t3", Answer("Good news."))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Good news [3]."))

    await platform.ask("How is the disk?")

    (asked,) = platform.requests_containing('<task id="t3">')
    assert "the disk is fine" in asked["messages"][1]["content"]
    assert "the door is fine" not in asked["messages"][1]["content"]


async def test_parallel_tasks_run_side_by_side(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(task("t1", BENCH), task("t2", SHOP)))
    for task_id in ("t1", "t2"):
        script.agent(task_id, calls(("meet", {"place": "side by side", "others": 2})))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("They met."))

    stream = await platform.ask("Meet.")

    assert [result["status"] for result in stream.of("task_result")] == ["approved", "approved"]


async def test_no_more_tasks_run_at_once_than_allowed(opened: Open, script: ScriptedModel) -> None:
    script.supervisor(decision(*(task(f"t{number}", "generalist") for number in range(3))))
    for number in range(3):
        script.agent(f"t{number}", Answer("Done."))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("All done."))

    async with opened(parallel_tasks=2) as platform:
        stream = await platform.ask("Do three things.")

    assert [len(route["selected_agents"]) for route in stream.of("route")] == [2, 1]


async def test_a_direct_reply_needs_one_call_and_is_typed_out(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(reply="Hello! I am Starling."))

    stream = await platform.ask("Hi, who are you?")

    assert (stream.status, stream.reply) == ("succeeded", "Hello! I am Starling.")
    assert "".join(part["content"] for part in stream.of("thinking")) == stream.reply
    assert len(platform.model.requests) == 1


async def test_a_text_with_characters_that_postgres_refuses_still_ends_the_run(
    platform: Platform, script: ScriptedModel
) -> None:
    script.supervisor(decision(reply="Hello\0!"))

    stream = await platform.ask("Hi.")

    assert (stream.status, stream.reply) == ("succeeded", "Hello�!")


async def test_what_postgres_refuses_ends_the_run_instead_of_every_life_of_it(
    platform: Platform, script: ScriptedModel, database_url: str
) -> None:
    script.supervisor(decision(task("t1", "generalist")))
    async with await AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute("ALTER TABLE events ADD CHECK (type <> 'plan')")

    stream = await platform.ask("Hi.")

    assert (stream.status, stream.codes) == ("failed", ["internal"])
    assert stream.key.id in stream.reply


async def test_an_invalid_decision_is_sent_back_once_with_what_is_wrong(
    platform: Platform, script: ScriptedModel
) -> None:
    script.supervisor(GARBAGE, decision(reply="Hello."))

    stream = await platform.ask("Hi.")

    repair = platform.model.bodies[1]["messages"]
    assert repair[-2] == {"role": "assistant", "content": GARBAGE.content}
    assert "<validation_error>plan: Input should be a valid array</validation_error>" in repair[-1]["content"]
    assert "<validation_error>thought_process: Field required</validation_error>" in repair[-1]["content"]
    assert (stream.status, stream.reply, stream.codes) == ("succeeded", "Hello.", ["llm_invalid_response"])


async def test_two_invalid_decisions_end_in_a_friendly_failure(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(GARBAGE)

    stream = await platform.ask("Hi.")

    assert stream.status == "failed"
    assert stream.reply.startswith("The request couldn't be planned. Model scripted:small: two answers in a row")
    assert len(platform.model.requests) == 2


@pytest.mark.parametrize(
    ("unreadable", "said"),
    [
        (Answer(""), "the answer is empty where a JSON object was asked for."),
        (Answer('{"plan": ["lo', finish_reason="length"), "the answer was cut off at the token limit"),
    ],
    ids=["empty", "cut"],
)
async def test_a_decision_that_cannot_be_read_is_sent_back_once(
    platform: Platform, script: ScriptedModel, unreadable: Answer, said: str
) -> None:
    script.supervisor(unreadable, decision(reply="Hello."))

    stream = await platform.ask("Hi.")

    repair = platform.model.bodies[1]["messages"]
    assert f"<validation_error>{said}" in repair[-1]["content"]
    assert [message["role"] for message in repair] == ["system", "user", "assistant", "user"]
    assert (stream.status, stream.reply, stream.codes) == ("succeeded", "Hello.", ["llm_invalid_response"])


async def test_two_decisions_that_cannot_be_read_are_given_up(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(Answer(""))

    stream = await platform.ask("Hi.")

    assert stream.reply.startswith("The request couldn't be planned. Model scripted:small: two answers in a row")
    assert (stream.status, len(platform.model.requests)) == ("failed", 2)


async def test_names_that_do_not_exist_are_sent_back_once(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(
        decision(task("t1", "bench"), task("t2", BENCH, after=["t9"])),
        decision(task("t1", BENCH), task("t2", BENCH, after=["t1"])),
    )
    script.agent("t1", LOOK)
    script.agent("t2", LOOK)
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Fine [1][2]."))

    stream = await platform.ask("How is the disk?")

    repair = platform.model.bodies[1]["messages"][-1]["content"]
    assert f"There is no agent 'bench'. The agents are: coder, generalist, {BENCH}, {SHOP}." in repair
    assert "t2: depends_on names t9, which isn't in the plan." in repair
    assert (stream.status, stream.codes) == ("succeeded", ["llm_invalid_response"])
    assert (await platform.result(stream.key)).degraded == []


async def test_what_a_repair_does_not_bring_does_not_take_away_the_rest(
    platform: Platform, script: ScriptedModel
) -> None:
    script.supervisor(decision(task("t1", "nobody", "book a flight"), task("t2", BENCH)), Answer(""))
    script.agent("t2", LOOK)
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("The disk is fine [1]; no flight."))

    stream = await platform.ask("Book a flight, and how is the disk?")

    assert stream.status == "succeeded"
    assert [part.part for part in (await platform.result(stream.key)).degraded] == ["book a flight"]


async def test_a_part_that_is_served_later_is_not_missing(platform: Platform, script: ScriptedModel) -> None:
    flight = task("t1", "nobody", "book a flight")
    script.supervisor(
        decision(flight, task("t2", BENCH)),
        decision(flight, task("t2", BENCH)),
        decision(task("t1", SHOP, "book a flight"), task("t2", "generalist")),
    )
    script.agent("t1", calls(("change", {"thing": "flight"})))
    script.agent("t2", Answer("I can't."), Answer("Fine."))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Booked [1], fine [2]."))

    stream = await platform.ask("Book a flight, and how is the disk?")

    assert (stream.status, (await platform.result(stream.key)).degraded) == ("succeeded", [])


async def test_a_direct_reply_names_what_it_leaves_out(platform: Platform, script: ScriptedModel) -> None:
    unserved = [{"part": "book a flight", "reason": "nobody books"}]
    script.supervisor(decision(reply="Hello!", unserved=unserved))

    stream = await platform.ask("Hi. Book a flight.")

    assert (stream.status, stream.reply) == ("succeeded", "Hello!\n\nNot answered: book a flight (nobody books)")
    assert "".join(part["content"] for part in stream.of("thinking")) == stream.reply
    assert [part.part for part in (await platform.result(stream.key)).degraded] == ["book a flight"]


async def test_a_failed_task_is_named_although_the_model_is_satisfied(
    platform: Platform, script: ScriptedModel
) -> None:
    script.supervisor(decision(task("t1", BENCH), task("t2", BENCH)), decision(is_request_satisfied=True))
    script.agent("t1", Answer("I can't."))
    script.agent("t2", LOOK)
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Fine [1]."))

    stream = await platform.ask("How is the disk?")

    parts = (await platform.result(stream.key)).degraded
    assert [(part.part, part.reason) for part in parts] == [("do t1", "I can't.")]


async def test_two_tasks_of_one_id_are_sent_back(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(task("t1", BENCH), task("t1", SHOP)), decision(reply="Never mind."))

    stream = await platform.ask("Do two things.")

    assert "t1 is given more than once" in platform.model.bodies[1]["messages"][-1]["content"]
    assert (stream.reply, stream.codes) == ("Never mind.", ["llm_invalid_response"])


async def test_a_task_for_nobody_is_named_as_not_done(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(task("t1", "nobody", "book a flight"), task("t2", BENCH)))
    script.agent("t2", LOOK)
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("The disk is fine [1]; no flight."))

    stream = await platform.ask("Book a flight, and how is the disk?")

    (asked,) = platform.requests_containing("You write the final answer")
    assert "<part reason=\"There is no agent 'nobody'.\">book a flight</part>" in asked["messages"][1]["content"]
    assert [part.part for part in (await platform.result(stream.key)).degraded] == ["book a flight"]


async def test_a_plan_of_which_nothing_can_be_done_is_no_success(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(task("t1", "nobody", "book a flight")))
    script.qa(Answer("Nobody here books flights."))

    stream = await platform.ask("Book a flight.")

    assert (stream.status, stream.reply) == ("failed", "Nobody here books flights.")


async def test_a_task_called_like_the_last_node_is_a_task_like_any_other(
    platform: Platform, script: ScriptedModel
) -> None:
    script.supervisor(decision(task("qa", "generalist", "test it")))
    script.agent("qa", Answer("Tested."))
    script.reviewer(verdict("APPROVED"))

    stream = await platform.ask("Test it.")

    assert (stream.status, stream.reply) == ("succeeded", "Tested.")


async def test_a_failed_task_calls_the_supervisor_again_and_its_second_try_counts(
    platform: Platform, script: ScriptedModel
) -> None:
    script.supervisor(decision(task("t1", BENCH)), decision(task("t1", SHOP)))
    script.agent("t1", Answer("I can't."), LOOK)
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Fine [1]."))

    stream = await platform.ask("How is the disk?")

    assert [(r["path"], r["agent"], r["status"]) for r in stream.of("task_result")] == [
        ("t1", BENCH, "failed"),
        ("t1.2", SHOP, "approved"),
    ]
    (_, second) = platform.requests_containing("You are the supervisor")
    assert "I can't." in second["messages"][1]["content"]
    assert (stream.status, (await platform.result(stream.key)).degraded) == ("succeeded", [])


async def test_a_new_task_may_wait_for_one_that_is_still_planned(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(
        decision(task("t1", BENCH), task("t2", BENCH, after=["t1"])),
        decision(task("t1", SHOP), task("t3", "generalist", after=["t2"])),
    )
    script.agent("t1", Answer("I can't."), LOOK)
    script.agent("t2", LOOK)
    script.agent("t3", Answer("Good news."))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Good news [3]."))

    stream = await platform.ask("How is the disk?")

    assert [result["task_id"] for result in stream.of("task_result")] == ["t1", "t1", "t2", "t3"]
    assert stream.status == "succeeded"


async def test_asking_the_same_agents_again_without_progress_ends_at_two(
    platform: Platform, script: ScriptedModel
) -> None:
    script.supervisor(decision(task("t1", BENCH), plan=["try"]))
    script.agent("t1", Answer("I can't."))
    script.qa(Answer("It couldn't be done."))

    stream = await platform.ask("How is the disk?")

    assert len(platform.requests_containing("You are the supervisor")) == 3
    assert len(stream.of("task_result")) == 2
    assert (stream.status, stream.codes) == ("failed", ["circuit_breaker"])


async def test_the_limit_of_decisions_holds(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(*(decision(task("t1", BENCH), plan=[f"try {number}"]) for number in range(9)))
    script.agent("t1", Answer("I can't."))
    script.qa(Answer("It couldn't be done."))

    stream = await platform.ask("How is the disk?", limits={"supervisor_calls": 2})

    assert len(platform.requests_containing("You are the supervisor")) == 2
    assert (stream.status, stream.codes) == ("failed", ["limit_reached"])


async def test_an_unreachable_model_ends_in_a_friendly_failure(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(Answer(status=401, body='{"error": {"message": "not today"}}'))

    stream = await platform.ask("Hi.")

    assert (stream.status, stream.codes) == ("failed", ["llm_server_error"])
    assert "not today" in stream.reply


async def test_assumptions_and_unserved_parts_reach_the_result(platform: Platform, script: ScriptedModel) -> None:
    unserved = [{"part": "book a flight", "reason": "nobody books"}]
    script.supervisor(decision(task("t1", BENCH), assumptions=["the first disk"], unserved=unserved))
    script.agent("t1", LOOK)
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Fine [1]."))

    stream = await platform.ask("How is the disk? Book a flight.")

    result = await platform.result(stream.key)
    assert result.assumptions == ["the first disk"]
    assert [(part.part, part.reason) for part in result.degraded] == [("book a flight", "nobody books")]
    assert [(citation.id, citation.task_id, citation.tools) for citation in result.citations] == [
        (1, "t1", ["bench.look"])
    ]
