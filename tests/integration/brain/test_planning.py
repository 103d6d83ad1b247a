"""The supervisor: asked where something is to decide, and a bad plan never passes for a good one."""

import pytest
from psycopg import AsyncConnection

from tests.integration.brain.conftest import Open
from tests.support.model_script import Answer
from tests.support.platform import BENCH, SHOP, ModelSays, Platform, calls, decision, task, verdict

LOOK = calls(("look", {"thing": "disk"}))
GARBAGE = Answer('{"plan": "none"}')


async def test_ready_tasks_and_a_finished_plan_need_no_model_call(platform: Platform, says: ModelSays) -> None:
    says.supervisor(decision(task("t1", BENCH), task("t2", BENCH, after=["t1"])))
    says.agent("t1", LOOK)
    says.agent("t2", LOOK)
    says.reviewer(verdict("APPROVED"))
    says.qa(Answer("All is fine [1][2]."))

    told = await platform.ask("How is the disk?")

    assert (told.status, told.reply) == ("succeeded", "All is fine [1][2].")
    assert len(platform.asked("You are the supervisor")) == 1
    assert [[item["task_id"] for item in route["selected_agents"]] for route in told.of("route")] == [["t1"], ["t2"]]


async def test_a_task_sees_the_results_that_it_depends_on(platform: Platform, says: ModelSays) -> None:
    says.supervisor(decision(task("t1", BENCH), task("t2", BENCH), task("t3", "generalist", after=["t1"])))
    says.agent("t1", LOOK)
    says.agent("t2", calls(("look", {"thing": "door"})))
    says.agent("t3", Answer("Good news."))
    says.reviewer(verdict("APPROVED"))
    says.qa(Answer("Good news [3]."))

    await platform.ask("How is the disk?")

    (asked,) = platform.asked('<task id="t3">')
    assert "the disk is fine" in asked["messages"][1]["content"]
    assert "the door is fine" not in asked["messages"][1]["content"]


async def test_parallel_tasks_run_side_by_side(platform: Platform, says: ModelSays) -> None:
    says.supervisor(decision(task("t1", BENCH), task("t2", SHOP)))
    for task_id in ("t1", "t2"):
        says.agent(task_id, calls(("meet", {"place": "side by side", "others": 2})))
    says.reviewer(verdict("APPROVED"))
    says.qa(Answer("They met."))

    told = await platform.ask("Meet.")

    assert [result["status"] for result in told.of("task_result")] == ["approved", "approved"]


async def test_no_more_tasks_run_at_once_than_allowed(opened: Open, says: ModelSays) -> None:
    says.supervisor(decision(*(task(f"t{number}", "generalist") for number in range(3))))
    for number in range(3):
        says.agent(f"t{number}", Answer("Done."))
    says.reviewer(verdict("APPROVED"))
    says.qa(Answer("All done."))

    async with opened(parallel_tasks=2) as platform:
        told = await platform.ask("Do three things.")

    assert [len(route["selected_agents"]) for route in told.of("route")] == [2, 1]


async def test_a_direct_reply_needs_one_call_and_is_typed_out(platform: Platform, says: ModelSays) -> None:
    says.supervisor(decision(reply="Hello! I am Starling."))

    told = await platform.ask("Hi, who are you?")

    assert (told.status, told.reply) == ("succeeded", "Hello! I am Starling.")
    assert "".join(part["content"] for part in told.of("thinking")) == told.reply
    assert len(platform.model.requests) == 1


async def test_a_text_with_characters_that_postgres_refuses_still_ends_the_run(
    platform: Platform, says: ModelSays
) -> None:
    says.supervisor(decision(reply="Hello\0!"))

    told = await platform.ask("Hi.")

    assert (told.status, told.reply) == ("succeeded", "Hello�!")


async def test_what_postgres_refuses_ends_the_run_instead_of_every_life_of_it(
    platform: Platform, says: ModelSays, database_url: str
) -> None:
    says.supervisor(decision(task("t1", "generalist")))
    async with await AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute("ALTER TABLE events ADD CHECK (type <> 'plan')")

    told = await platform.ask("Hi.")

    assert (told.status, told.codes) == ("failed", ["internal"])
    assert told.key.id in told.reply


async def test_an_invalid_decision_is_sent_back_once_with_what_is_wrong(platform: Platform, says: ModelSays) -> None:
    says.supervisor(GARBAGE, decision(reply="Hello."))

    told = await platform.ask("Hi.")

    repair = platform.model.bodies[1]["messages"]
    assert repair[-2] == {"role": "assistant", "content": GARBAGE.content}
    assert "<validation_error>plan: Input should be a valid array</validation_error>" in repair[-1]["content"]
    assert "<validation_error>thought_process: Field required</validation_error>" in repair[-1]["content"]
    assert (told.status, told.reply, told.codes) == ("succeeded", "Hello.", ["llm_invalid_response"])


async def test_two_invalid_decisions_end_in_a_friendly_failure(platform: Platform, says: ModelSays) -> None:
    says.supervisor(GARBAGE)

    told = await platform.ask("Hi.")

    assert told.status == "failed"
    assert told.reply.startswith("The request couldn't be planned. Model scripted:small: two answers in a row")
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
    platform: Platform, says: ModelSays, unreadable: Answer, said: str
) -> None:
    says.supervisor(unreadable, decision(reply="Hello."))

    told = await platform.ask("Hi.")

    repair = platform.model.bodies[1]["messages"]
    assert f"<validation_error>{said}" in repair[-1]["content"]
    assert [message["role"] for message in repair] == ["system", "user", "assistant", "user"]
    assert (told.status, told.reply, told.codes) == ("succeeded", "Hello.", ["llm_invalid_response"])


async def test_two_decisions_that_cannot_be_read_are_given_up(platform: Platform, says: ModelSays) -> None:
    says.supervisor(Answer(""))

    told = await platform.ask("Hi.")

    assert told.reply.startswith("The request couldn't be planned. Model scripted:small: two answers in a row")
    assert (told.status, len(platform.model.requests)) == ("failed", 2)


async def test_names_that_do_not_exist_are_sent_back_once(platform: Platform, says: ModelSays) -> None:
    says.supervisor(
        decision(task("t1", "bench"), task("t2", BENCH, after=["t9"])),
        decision(task("t1", BENCH), task("t2", BENCH, after=["t1"])),
    )
    says.agent("t1", LOOK)
    says.agent("t2", LOOK)
    says.reviewer(verdict("APPROVED"))
    says.qa(Answer("Fine [1][2]."))

    told = await platform.ask("How is the disk?")

    repair = platform.model.bodies[1]["messages"][-1]["content"]
    assert f"There is no agent 'bench'. The agents are: coder, generalist, {BENCH}, {SHOP}." in repair
    assert "t2: depends_on names t9, which isn't in the plan." in repair
    assert (told.status, told.codes) == ("succeeded", ["llm_invalid_response"])
    assert (await platform.result(told.key)).degraded == []


async def test_what_a_repair_does_not_bring_does_not_take_away_the_rest(platform: Platform, says: ModelSays) -> None:
    says.supervisor(decision(task("t1", "nobody", "book a flight"), task("t2", BENCH)), Answer(""))
    says.agent("t2", LOOK)
    says.reviewer(verdict("APPROVED"))
    says.qa(Answer("The disk is fine [1]; no flight."))

    told = await platform.ask("Book a flight, and how is the disk?")

    assert told.status == "succeeded"
    assert [part.part for part in (await platform.result(told.key)).degraded] == ["book a flight"]


async def test_a_part_that_is_served_later_is_not_missing(platform: Platform, says: ModelSays) -> None:
    flight = task("t1", "nobody", "book a flight")
    says.supervisor(
        decision(flight, task("t2", BENCH)),
        decision(flight, task("t2", BENCH)),
        decision(task("t1", SHOP, "book a flight"), task("t2", "generalist")),
    )
    says.agent("t1", calls(("change", {"thing": "flight"})))
    says.agent("t2", Answer("I can't."), Answer("Fine."))
    says.reviewer(verdict("APPROVED"))
    says.qa(Answer("Booked [1], fine [2]."))

    told = await platform.ask("Book a flight, and how is the disk?")

    assert (told.status, (await platform.result(told.key)).degraded) == ("succeeded", [])


async def test_a_direct_reply_names_what_it_leaves_out(platform: Platform, says: ModelSays) -> None:
    unserved = [{"part": "book a flight", "reason": "nobody books"}]
    says.supervisor(decision(reply="Hello!", unserved=unserved))

    told = await platform.ask("Hi. Book a flight.")

    assert (told.status, told.reply) == ("succeeded", "Hello!\n\nNot answered: book a flight (nobody books)")
    assert "".join(part["content"] for part in told.of("thinking")) == told.reply
    assert [part.part for part in (await platform.result(told.key)).degraded] == ["book a flight"]


async def test_a_failed_task_is_named_although_the_model_is_satisfied(platform: Platform, says: ModelSays) -> None:
    says.supervisor(decision(task("t1", BENCH), task("t2", BENCH)), decision(is_request_satisfied=True))
    says.agent("t1", Answer("I can't."))
    says.agent("t2", LOOK)
    says.reviewer(verdict("APPROVED"))
    says.qa(Answer("Fine [1]."))

    told = await platform.ask("How is the disk?")

    parts = (await platform.result(told.key)).degraded
    assert [(part.part, part.reason) for part in parts] == [("do t1", "I can't.")]


async def test_two_tasks_of_one_id_are_sent_back(platform: Platform, says: ModelSays) -> None:
    says.supervisor(decision(task("t1", BENCH), task("t1", SHOP)), decision(reply="Never mind."))

    told = await platform.ask("Do two things.")

    assert "t1 is given more than once" in platform.model.bodies[1]["messages"][-1]["content"]
    assert (told.reply, told.codes) == ("Never mind.", ["llm_invalid_response"])


async def test_a_task_for_nobody_is_named_as_not_done(platform: Platform, says: ModelSays) -> None:
    says.supervisor(decision(task("t1", "nobody", "book a flight"), task("t2", BENCH)))
    says.agent("t2", LOOK)
    says.reviewer(verdict("APPROVED"))
    says.qa(Answer("The disk is fine [1]; no flight."))

    told = await platform.ask("Book a flight, and how is the disk?")

    (asked,) = platform.asked("You write the final answer")
    assert "<part reason=\"There is no agent 'nobody'.\">book a flight</part>" in asked["messages"][1]["content"]
    assert [part.part for part in (await platform.result(told.key)).degraded] == ["book a flight"]


async def test_a_plan_of_which_nothing_can_be_done_is_no_success(platform: Platform, says: ModelSays) -> None:
    says.supervisor(decision(task("t1", "nobody", "book a flight")))
    says.qa(Answer("Nobody here books flights."))

    told = await platform.ask("Book a flight.")

    assert (told.status, told.reply) == ("failed", "Nobody here books flights.")


async def test_a_task_called_like_the_last_node_is_a_task_like_any_other(platform: Platform, says: ModelSays) -> None:
    says.supervisor(decision(task("qa", "generalist", "test it")))
    says.agent("qa", Answer("Tested."))
    says.reviewer(verdict("APPROVED"))

    told = await platform.ask("Test it.")

    assert (told.status, told.reply) == ("succeeded", "Tested.")


async def test_a_failed_task_calls_the_supervisor_again_and_its_second_try_counts(
    platform: Platform, says: ModelSays
) -> None:
    says.supervisor(decision(task("t1", BENCH)), decision(task("t1", SHOP)))
    says.agent("t1", Answer("I can't."), LOOK)
    says.reviewer(verdict("APPROVED"))
    says.qa(Answer("Fine [1]."))

    told = await platform.ask("How is the disk?")

    assert [(r["path"], r["agent"], r["status"]) for r in told.of("task_result")] == [
        ("t1", BENCH, "failed"),
        ("t1.2", SHOP, "approved"),
    ]
    (_, second) = platform.asked("You are the supervisor")
    assert "I can't." in second["messages"][1]["content"]
    assert (told.status, (await platform.result(told.key)).degraded) == ("succeeded", [])


async def test_a_new_task_may_wait_for_one_that_is_still_planned(platform: Platform, says: ModelSays) -> None:
    says.supervisor(
        decision(task("t1", BENCH), task("t2", BENCH, after=["t1"])),
        decision(task("t1", SHOP), task("t3", "generalist", after=["t2"])),
    )
    says.agent("t1", Answer("I can't."), LOOK)
    says.agent("t2", LOOK)
    says.agent("t3", Answer("Good news."))
    says.reviewer(verdict("APPROVED"))
    says.qa(Answer("Good news [3]."))

    told = await platform.ask("How is the disk?")

    assert [result["task_id"] for result in told.of("task_result")] == ["t1", "t1", "t2", "t3"]
    assert told.status == "succeeded"


async def test_asking_the_same_agents_again_without_progress_ends_at_two(platform: Platform, says: ModelSays) -> None:
    says.supervisor(decision(task("t1", BENCH), plan=["try"]))
    says.agent("t1", Answer("I can't."))
    says.qa(Answer("It couldn't be done."))

    told = await platform.ask("How is the disk?")

    assert len(platform.asked("You are the supervisor")) == 3
    assert len(told.of("task_result")) == 2
    assert (told.status, told.codes) == ("failed", ["circuit_breaker"])


async def test_the_limit_of_decisions_holds(platform: Platform, says: ModelSays) -> None:
    says.supervisor(*(decision(task("t1", BENCH), plan=[f"try {number}"]) for number in range(9)))
    says.agent("t1", Answer("I can't."))
    says.qa(Answer("It couldn't be done."))

    told = await platform.ask("How is the disk?", limits={"supervisor_calls": 2})

    assert len(platform.asked("You are the supervisor")) == 2
    assert (told.status, told.codes) == ("failed", ["limit_reached"])


async def test_an_unreachable_model_ends_in_a_friendly_failure(platform: Platform, says: ModelSays) -> None:
    says.supervisor(Answer(status=401, body='{"error": {"message": "not today"}}'))

    told = await platform.ask("Hi.")

    assert (told.status, told.codes) == ("failed", ["llm_server_error"])
    assert "not today" in told.reply


async def test_assumptions_and_unserved_parts_reach_the_result(platform: Platform, says: ModelSays) -> None:
    unserved = [{"part": "book a flight", "reason": "nobody books"}]
    says.supervisor(decision(task("t1", BENCH), assumptions=["the first disk"], unserved=unserved))
    says.agent("t1", LOOK)
    says.reviewer(verdict("APPROVED"))
    says.qa(Answer("Fine [1]."))

    told = await platform.ask("How is the disk? Book a flight.")

    result = await platform.result(told.key)
    assert result.assumptions == ["the first disk"]
    assert [(part.part, part.reason) for part in result.degraded] == [("book a flight", "nobody books")]
    assert [(citation.id, citation.task_id, citation.tools) for citation in result.citations] == [
        (1, "t1", ["bench.look"])
    ]
