"""Runs in which nothing went wrong that was not made up for."""

from brain.explanation.rows import AnswerRow
from brain.explanation.shape import Explanation
from starling.core.tool_calls import Effect
from tests.support.run_rows import SHOP, WEATHER, WRITER, RunStory, Told, planned, story_of_five


def corrected_argument() -> Explanation:
    story = story_of_five()
    story.start("t3")
    story.call("t3", "shop.price", {"item": "cote"}, "We sell no cote.", "tool_error")
    story.verdict("t3", "REJECTED", "shop.price failed: We sell no cote.")
    story.done("t3", "shop.price", {"item": "coat"}, "80 EUR")
    return story.explained()


def better_second_attempt() -> Explanation:
    story = story_of_five()
    story.start("t3")
    story.call("t3", "shop.price", {"item": "coat"}, "80 EUR")
    story.verdict("t3", "REJECTED", "The size is missing.")
    story.done("t3", "shop.price", {"item": "coat", "size": "M"}, "80 EUR for size M")
    return story.explained()


def another_tool_for_the_same_thing() -> Explanation:
    story = story_of_five()
    story.start("t3")
    story.call("t3", "shop.price", {"item": "coat"}, "The list is locked.", "tool_error")
    story.call("t3", "shop.search", {"words": "coat"}, "coat: 80 EUR")
    story.verdict("t3", "APPROVED")
    story.end("t3", "coat: 80 EUR")
    return story.explained()


def failed_task_done_in_a_later_try() -> Explanation:
    story = story_of_five()
    story.start("t3")
    story.call("t3", "shop.price", {"item": "coat"}, "shop did not answer within 10 s.", "timeout")
    story.end("t3", "shop did not answer within 10 s.", "timeout")
    story.plan(planned("t3", SHOP, "Look up the price of a coat"), version=2)
    story.done("t3.2", "shop.price", {"item": "coat"}, "80 EUR")
    return story.explained()


def approved_call() -> Explanation:
    story = story_of_five()
    story.start("t4")
    story.ask("approval", "resolved", "t4", payload={"approved": True}, answered_by="Ann", answered_at=story.now)
    story.call("t4", "shop.order", {"item": "coat"}, "ordered", effect=Effect.UNSAFE)
    story.end("t4", "ordered")
    return story.explained()


def decision_repaired_once() -> Explanation:
    story = RunStory()
    story.warn("llm_invalid_response", "m answered with an invalid document: plan: is missing.")
    story.plan(planned("t1", WEATHER, "How warm is it?"))
    story.done("t1", "weather.now", {}, "18 degrees")
    return story.explained()


def fix_of_words_only() -> Explanation:
    story = story_of_five()
    story.start("t3")
    story.call("t3", "shop.price", {"item": "coat"}, "price=80;currency=EUR")
    story.answers.append(AnswerRow("t3/review", 0, '{"status": "FIXED", "refined_output": "The coat costs 80 EUR."}'))
    story.verdict("t3", "FIXED")
    story.end("t3", "The coat costs 80 EUR.")
    return story.explained()


def still_running() -> Explanation:
    story = story_of_five()
    story.start("t3")
    story.ask("approval", "open", "t3")
    return story.explained("waiting")


def text_about_what_another_task_does() -> Explanation:
    story = RunStory()
    story.plan(planned("t1", WRITER, "Write a packing list"), planned("t2", SHOP, "Look up the flight"))
    story.start("t1")
    story.write("t1", "Pack a coat first, before the flight. You need nothing else.")
    story.verdict("t1", "APPROVED")
    story.end("t1", "Pack a coat first, before the flight. You need nothing else.")
    story.done("t2", "shop.flights", {}, "At noon.")
    return story.explained()


SOUND: list[Told] = [
    lambda: story_of_five().explained(),
    corrected_argument,
    better_second_attempt,
    another_tool_for_the_same_thing,
    failed_task_done_in_a_later_try,
    approved_call,
    decision_repaired_once,
    fix_of_words_only,
    still_running,
    text_about_what_another_task_does,
]
