"""The final answer: streamed, with its sources, and there even if no model can put it into words."""

import asyncio

from tests.integration.brain.conftest import Open
from tests.support.model_script import Answer, Rule, When
from tests.support.platform import BENCH, ModelSays, Platform, Told, calls, decision, task, verdict

LOOK = calls(("look", {"thing": "disk"}))


def typed(told: Told) -> str:
    """What a reader sees at the end, who lets each new message take the place of the one before."""
    parts = told.of("thinking")
    return "".join(part["content"] for part in parts if part["message_id"] == parts[-1]["message_id"])


def plan_one_look(says: ModelSays) -> None:
    says.supervisor(decision(task("t1", BENCH)))
    says.agent("t1", LOOK)
    says.reviewer(verdict("APPROVED"))


async def test_qa_streams_while_it_writes(platform: Platform, says: ModelSays) -> None:
    plan_one_look(says)
    says.qa(Answer("The disk is fine [1].", hold="rest", hold_after=2))
    key = await platform.accept("How is the disk?")

    async with platform.living(key) as life:
        async for event in platform.services.reader.follow(key):
            if event.type == "thinking":
                break
        platform.model.release("rest")
        await life

    told = await platform.told(key)
    assert [part["content"] for part in told.of("thinking")] == ["The disk ", "is fine [1]."]
    assert typed(told) == told.reply == "The disk is fine [1]."


async def test_qa_sees_results_with_their_citation_and_what_is_missing(platform: Platform, says: ModelSays) -> None:
    says.supervisor(decision(task("t1", BENCH), task("t2", BENCH), assumptions=["<any> disk"]), decision())
    says.agent("t1", Answer("I can't."))
    says.agent("t2", LOOK)
    says.reviewer(verdict("APPROVED"))
    says.qa(Answer("Fine [1]."))

    await platform.ask("How is the disk?")

    (asked,) = platform.asked("You write the final answer")
    prompt = asked["messages"][1]["content"]
    assert f'<result task_id="t2" agent="{BENCH}" status="approved" citation="1">the disk is fine</result>' in prompt
    assert '<part reason="I can\'t.">do t1</part>' in prompt
    assert "<assumption>&lt;any&gt; disk</assumption>" in prompt


async def test_without_qa_the_results_are_the_answer(platform: Platform, says: ModelSays) -> None:
    plan_one_look(says)
    says.qa(Answer(status=401, body="{}"))

    told = await platform.ask("How is the disk?")

    assert (told.status, told.reply, told.codes) == ("succeeded", "the disk is fine [1]", ["llm_server_error"])
    assert typed(told) == told.reply


async def test_the_plain_answer_replaces_what_was_typed_before(opened: Open, says: ModelSays) -> None:
    plan_one_look(says)
    says.qa(Answer("The disk is on fire", hold="for ever", hold_after=3))

    async with opened(model_call_seconds=1.0) as platform:
        told = await platform.ask("How is the disk?")

    assert told.codes == ["llm_timeout"]
    assert typed(told) == told.reply == "the disk is fine [1]"


async def test_a_stream_that_breaks_off_begins_anew(platform: Platform, says: ModelSays) -> None:
    plan_one_look(says)
    says.qa(Answer("The disk is on fire", cut_after=2), Answer("The disk is fine [1]."))

    told = await platform.ask("How is the disk?")

    assert (told.status, told.codes) == ("succeeded", ["model"])
    assert len({part["message_id"] for part in told.of("thinking")}) == 2
    assert typed(told) == told.reply == "The disk is fine [1]."


async def test_trouble_with_a_model_is_told_once_for_as_long_as_it_lasts(opened: Open, says: ModelSays) -> None:
    says.rules.append(Rule(Answer(cut_after=0), When(model="gone")))
    plan_one_look(says)
    says.qa(Answer("The disk is fine [1]."))

    async with opened(models=("scripted:gone", "scripted:small")) as platform:
        told = await platform.ask("How is the disk?")

    assert told.reply == "The disk is fine [1]."
    broken, skipped = (data["message"] for data in told.of("warning"))
    assert broken.startswith("Model scripted:gone: the connection to ")
    assert skipped == "Model scripted:gone is skipped for a while: it didn't answer lately."


async def test_an_empty_answer_of_qa_is_none(platform: Platform, says: ModelSays) -> None:
    plan_one_look(says)
    says.qa(Answer("  "))

    told = await platform.ask("How is the disk?")

    assert (told.reply, told.codes) == ("the disk is fine [1]", ["llm_invalid_response"])


async def test_one_written_task_streams_and_skips_qa(platform: Platform, says: ModelSays) -> None:
    says.supervisor(decision(task("t1", "coder", "write it")))
    says.agent("t1", Answer("print(1)", hold="rest", hold_after=1))
    says.reviewer(verdict("APPROVED"))
    key = await platform.accept("Write it.")

    async with platform.living(key) as life:
        async for event in platform.services.reader.follow(key):
            if event.type == "thinking":
                break
        platform.model.release("rest")
        await life

    told = await platform.told(key)
    assert typed(told) == told.reply == "print(1)"
    assert platform.asked("You write the final answer") == []


async def test_a_rejected_draft_is_replaced_by_the_next_one(platform: Platform, says: ModelSays) -> None:
    says.supervisor(decision(task("t1", "generalist", "say it")))
    says.agent("t1", Answer("A bad draft."), Answer("A good one."))
    says.reviewer(verdict("REJECTED", "It is bad."), verdict("APPROVED"))

    told = await platform.ask("Say it.")

    assert len({part["message_id"] for part in told.of("thinking")}) == 2
    assert typed(told) == told.reply == "A good one."


async def test_what_the_review_fixed_is_typed_out(platform: Platform, says: ModelSays) -> None:
    says.supervisor(decision(task("t1", "generalist", "say it")))
    says.agent("t1", Answer("A bda text."))
    says.reviewer(verdict("FIXED", "A letter.", refined="A bad text."), verdict("APPROVED"))

    told = await platform.ask("Say it.")

    assert typed(told) == told.reply == "A bad text."


async def test_one_of_several_written_tasks_is_not_typed_out(platform: Platform, says: ModelSays) -> None:
    says.supervisor(decision(task("t1", "generalist"), task("t2", "generalist")))
    says.agent("t1", Answer("One."))
    says.agent("t2", Answer("Two."))
    says.reviewer(verdict("APPROVED"))
    says.qa(Answer("One and two [1][2]."))

    told = await platform.ask("Say both.")

    assert {part["content"] for part in told.of("thinking")} == {"One and two [1][2]."}


async def test_usage_counts_all_that_was_asked(platform: Platform, says: ModelSays) -> None:
    plan_one_look(says)
    says.qa(Answer("Fine [1]."))

    told = await platform.ask("How is the disk?")

    assert told.done["usage"] == {
        "tokens": 4 * 18,
        "input_tokens": 4 * 11,
        "output_tokens": 4 * 7,
        "model_calls": 4,
        "tool_calls": 1,
    }


async def test_many_runs_at_once_keep_to_themselves(platform: Platform, says: ModelSays) -> None:
    for number in range(6):
        says.supervisor(decision(task(f"t{number}", "generalist")))
        says.agent(f"t{number}", Answer(f"Answer t{number}."))
    says.reviewer(verdict("APPROVED"))

    keys = [await platform.accept(f"Question {number}.", thread=f"thread {number}") for number in range(4)]
    told = await asyncio.gather(*map(platform.finish, keys))

    assert [one.status for one in told] == ["succeeded"] * 4
    assert all(one.of("task_result")[0]["summary"] == one.reply for one in told)
