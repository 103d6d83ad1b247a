"""Runs that fail by a verdict, or by what a model wrote or did not write."""

from brain.explanation.rows import AnswerRow
from brain.explanation.shape import Explanation
from tests.support.run_rows import RunStory, Told, story_of_five


def approved_error() -> Explanation:
    story = story_of_five()
    story.done("t3", "shop.price", {"item": "coat"}, "Error: the price list is empty")
    return story.explained()


def right_result_rejected() -> Explanation:
    story = story_of_five()
    for _ in range(3):
        story.start("t3")
        story.call("t3", "shop.price", {"item": "coat"}, "80 EUR")
        story.verdict("t3", "REJECTED", "I don't believe that.")
    story.end("t3", "I don't believe that.", "rejected")
    return story.explained()


def same_result_approved_after_all() -> Explanation:
    story = story_of_five()
    story.start("t3")
    story.call("t3", "shop.price", {"item": "coat"}, "80 EUR")
    story.verdict("t3", "REJECTED", "No price.")
    story.done("t3", "shop.price", {"item": "coat"}, "80 EUR")
    return story.explained()


def fix_with_another_number() -> Explanation:
    story = story_of_five()
    story.start("t3")
    story.call("t3", "shop.price", {"item": "coat"}, "80 EUR")
    story.answers.append(AnswerRow("t3/review", 0, '{"status": "FIXED", "refined_output": "It is 60 EUR."}'))
    story.verdict("t3", "FIXED")
    story.end("t3", "It is 60 EUR.")
    return story.explained()


def unplannable() -> Explanation:
    story = RunStory()
    story.warn("llm_invalid_response", "m answered with an invalid document: no object. It wrote: Sure!")
    story.warn("llm_invalid_response", "Model m: two answers in a row weren't the JSON asked for.")
    return story.explained("failed", "llm_invalid_response")


def unreadable_review() -> Explanation:
    story = story_of_five()
    story.start("t3")
    story.call("t3", "shop.price", {"item": "coat"}, "80 EUR")
    story.warn("llm_invalid_response", "Model m: two answers in a row weren't the JSON asked for.", "t3")
    story.end("t3", "Model m: two answers in a row weren't the JSON asked for.", "llm_invalid_response")
    return story.explained()


def unreadable_arguments() -> Explanation:
    story = story_of_five()
    story.start("t3")
    story.call("t3", "shop.price", {}, "The arguments are no JSON object.", "invalid_arguments")
    story.answers.append(AnswerRow("t3", 0, "", malformed=frozenset({0})))
    story.end("t3", "shop.price failed: The arguments are no JSON object.", "invalid_arguments")
    return story.explained()


def no_model() -> Explanation:
    story = RunStory()
    story.warn("llm_connection_error", "Model m: connection refused")
    return story.explained("failed", "llm_connection_error")


def results_that_were_rejected_each_for_another_reason() -> Explanation:
    story = story_of_five()
    for price in (80, 70):
        story.start("t3")
        story.call("t3", "shop.price", {"item": "coat"}, f"{price} EUR")
        story.verdict("t3", "REJECTED", f"{price} EUR can't be right.")
    story.end("t3", "70 EUR can't be right.", "rejected")
    return story.explained()


def right_tool_rejected_beside_another_one() -> Explanation:
    story = story_of_five()
    story.tools = {"shop": ["order", "price"]}
    for _ in range(2):
        story.start("t3")
        story.call("t3", "shop.price", {"item": "coat"}, "80 EUR")
        story.verdict("t3", "REJECTED", "I expected an order of the coat.")
    story.end("t3", "I expected an order of the coat.", "rejected")
    return story.explained()


FAILURES: list[tuple[str, Told]] = [
    ("wrong_verdict", approved_error),
    ("wrong_verdict", right_result_rejected),
    ("wrong_verdict", same_result_approved_after_all),
    ("wrong_verdict", fix_with_another_number),
    ("unreadable_model_output", unplannable),
    ("unreadable_model_output", unreadable_review),
    ("unreadable_model_output", unreadable_arguments),
    ("model_unavailable", no_model),
    ("rejected_result", results_that_were_rejected_each_for_another_reason),
    ("wrong_verdict", right_tool_rejected_beside_another_one),
]
