"""Runs that fail at a call: its arguments, an error that is passed over, its server or its tool."""

from collections.abc import Sequence
from dataclasses import replace

from brain.explanation.rows import AnswerRow
from brain.explanation.shape import Explanation
from tests.support.run_rows import RUN, SHOP, WEATHER, RunStory, Told, planned, story_of_five


def rejected_arguments() -> Explanation:
    story = story_of_five()
    story.start("t3")
    story.call("t3", "shop.price", {"itme": "coat"}, "'item' is a required property", "invalid_arguments")
    story.verdict("t3", "REJECTED", "shop.price failed.")
    story.end("t3", "shop.price failed: 'item' is a required property", "invalid_arguments")
    return story.explained()


def unknown_value() -> Explanation:
    story = story_of_five()
    story.start("t3")
    story.call("t3", "shop.price", {"item": "cote"}, "We sell nothing named cote.", "tool_error")
    story.end("t3", "shop.price failed: We sell nothing named cote.", "tool_error")
    return story.explained()


def result_for_another_value() -> Explanation:
    story = story_of_five()
    for _ in range(3):
        story.start("t3")
        story.call("t3", "shop.price", {"item": "umbrella"}, "12 EUR")
        story.verdict("t3", "REJECTED", "That is the price of an umbrella.")
    story.end("t3", "That is the price of an umbrella.", "rejected")
    return story.explained()


def misspelt_name_where_others_call_the_same_tool() -> Explanation:
    story = RunStory()
    cities = ("Lima", "Oslo", "Rome")
    story.plan(*(planned(f"t{n}", WEATHER, f"How warm is it in the city of {city}?") for n, city in enumerate(cities)))
    story.start("t0")
    story.call("t0", "weather.now", {"town": "Lima"}, "'city' is a required property", "invalid_arguments")
    story.end("t0", "weather.now failed: 'city' is a required property", "invalid_arguments")
    story.done("t1", "weather.now", {"city": "Oslo"}, "-4 degrees")
    story.done("t2", "weather.now", {"city": "Rome"}, "20 degrees")
    return story.explained()


def empty_value() -> Explanation:
    story = story_of_five()
    story.start("t3")
    story.call("t3", "shop.price", {"coat": ""}, "coat must not be empty", "tool_error")
    story.end("t3", "shop.price failed: coat must not be empty", "tool_error")
    return story.explained()


def error_beside_a_result() -> Explanation:
    story = story_of_five()
    story.start("t3")
    story.call("t3", "shop.stock", {"item": "coat"}, "the stock list is locked", "tool_error")
    story.call("t3", "shop.opening_hours", {}, "9 to 17", same_answer=True)
    story.verdict("t3", "APPROVED")
    story.end("t3", "the shop is open")
    story.done("t4", "shop.order", {"item": "coat"}, "ordered")
    return story.explained()


def error_in_a_result_that_succeeded() -> Explanation:
    story = story_of_five()
    story.start("t3")
    story.call("t3", "shop.price", {"item": "coat"}, '{"error": "price list is being rebuilt"}')
    story.call("t3", "shop.opening_hours", {}, "9 to 17")
    story.verdict("t3", "APPROVED")
    story.end("t3", "the shop is open")
    return story.explained()


def silent_server() -> Explanation:
    story = story_of_five()
    story.start("t3")
    story.call("t3", "shop.price", {"item": "coat"}, "shop did not answer within 10 s.", "timeout")
    story.end("t3", "shop.price failed: shop did not answer within 10 s.", "timeout")
    return story.explained()


def server_degraded_when_planned() -> Explanation:
    story = RunStory(servers={"weather": "ready", "shop": "degraded"})
    story.plan(planned("t1", WEATHER, "How warm is it?"))
    story.done("t1", "weather.now", {}, "18 degrees")
    part = {"part": "Order the coat", "reason": "The agent mcp_agent_shop can't work now."}
    return story.explained(degraded=[part])


def server_that_a_decision_named() -> Explanation:
    story = RunStory(servers={"weather": "ready", "shop": "ready"})
    chosen = '{"selected_agents": [{"task_id": "t2", "agent": "mcp_agent_shop", "task": "Order the coat"}]}'
    story.answers.append(AnswerRow("supervisor/1", 0, chosen))
    story.plan(planned("t1", WEATHER, "How warm is it?"))
    story.done("t1", "weather.now", {}, "18 degrees")
    return story.explained(degraded=[{"part": "Order the coat", "reason": "the command 'shopd' was not found."}])


def failing_service_behind_a_tool() -> Explanation:
    story = story_of_five()
    story.start("t3")
    story.call("t3", "shop.price", {"item": "coat"}, "HTTP 503: try again later", "tool_error")
    story.end("t3", "shop.price failed: HTTP 503: try again later", "tool_error")
    return story.explained()


def service_that_is_not_available() -> Explanation:
    story = story_of_five()
    story.start("t3")
    text = "The order service is offline and not available."
    story.call("t3", "shop.price", {"item": "coat"}, text, "tool_error")
    story.end("t3", f"shop.price failed: {text}", "tool_error")
    return story.explained()


def _failed_price(text: str, code: str, name: str = "shop.price") -> Explanation:
    story = story_of_five()
    story.start("t3")
    story.call("t3", name, {"item": "coat"}, text, code)
    story.end("t3", f"{name} failed: {text}", code)
    return story.explained()


def quarantined_tool() -> Explanation:
    return _failed_price("shop.price isn't offered as it was approved. Its description has changed.", "quarantined")


def removed_tool() -> Explanation:
    return _failed_price("shop.price was removed from its server.", "removed")


def tool_that_fails_for_no_known_reason() -> Explanation:
    return _failed_price("the clerk sleeps", "tool_error")


def kept_result_that_was_deleted() -> Explanation:
    return _failed_price("There is no artifact 'a1b2c3'.", "removed", "read_artifact")


def kept_result_while_postgres_is_away() -> Explanation:
    text = "It can't be read now. Postgres can't be used: connection refused."
    return _failed_price(text, "tool_error", "read_artifact")


def answer_that_breaks_its_schema() -> Explanation:
    return _failed_price("The result of shop.price violates its output schema: 'sum' is missing.", "invalid_result")


def more_calls_than_a_task_may_make() -> Explanation:
    text = "Not called: a task may make at most 20 tool calls, and this one has made them (limits.tool_calls_per_task)."
    return _failed_price(text, "over_limit")


def call_at_which_the_platform_fails() -> Explanation:
    return _failed_price("Starling itself failed at this call: look for t3.0.0 in its log.", "internal")


def value_that_the_request_names_for_something_else() -> Explanation:
    story = RunStory(run=replace(RUN, input="Where do AB12 and CD345 leave?"))
    story.plan(planned("t1", WEATHER, "Find the gate of AB12"), planned("t2", WEATHER, "Find the gate of CD345"))
    story.done("t1", "weather.gate", {"flight": "AB12"}, "gate 4")
    for _ in range(2):
        story.start("t2")
        story.call("t2", "weather.gate", {"flight": "AB12"}, "gate 4")
        story.verdict("t2", "REJECTED", "This belongs to another one.")
    story.end("t2", "This belongs to another one.", "rejected")
    return story.explained()


def _rejected_call(task: str, name: str, *reasons: str, tools: Sequence[str] = ()) -> Explanation:
    story = RunStory(tools={"shop": tools})
    story.plan(planned("t1", SHOP, task))
    for reason in reasons:
        story.start("t1")
        story.call("t1", name, {"item": "coat"}, "80 EUR for a coat")
        story.verdict("t1", "REJECTED", reason)
    story.end("t1", reasons[-1], "rejected")
    return story.explained()


def price_instead_of_an_order() -> Explanation:
    reason = "It says what the coat costs."
    return _rejected_call("Order a coat", "shop.price", reason, reason, tools=["order", "price"])


def one_of_two_tools_that_a_task_names() -> Explanation:
    reason = "Nothing was ordered."
    task = "Look up the price of a coat and order it"
    return _rejected_call(task, "shop.price", reason, reason, tools=["order_item", "price"])


def tool_that_only_the_rejection_names() -> Explanation:
    reason = "No seats were booked for the guests."
    return _rejected_call("Book seats for the guests", "shop.price", reason, reason)


FAILURES: list[tuple[str, Told]] = [
    ("wrong_argument", rejected_arguments),
    ("wrong_argument", unknown_value),
    ("wrong_argument", result_for_another_value),
    ("wrong_argument", misspelt_name_where_others_call_the_same_tool),
    ("wrong_argument", empty_value),
    ("ignored_tool_error", error_beside_a_result),
    ("ignored_tool_error", error_in_a_result_that_succeeded),
    ("degraded_server", silent_server),
    ("degraded_server", server_degraded_when_planned),
    ("degraded_server", server_that_a_decision_named),
    ("degraded_server", failing_service_behind_a_tool),
    ("degraded_server", service_that_is_not_available),
    ("changed_tool", quarantined_tool),
    ("changed_tool", removed_tool),
    ("tool_failed", tool_that_fails_for_no_known_reason),
    ("tool_failed", kept_result_that_was_deleted),
    ("unreachable_database", kept_result_while_postgres_is_away),
    ("invalid_result", answer_that_breaks_its_schema),
    ("limit_reached", more_calls_than_a_task_may_make),
    ("internal_error", call_at_which_the_platform_fails),
    ("wrong_argument", value_that_the_request_names_for_something_else),
    ("wrong_tool", price_instead_of_an_order),
    ("wrong_tool", one_of_two_tools_that_a_task_names),
    ("rejected_result", tool_that_only_the_rejection_names),
]
