"""Runs that fail by their plan: its order, or parts that nobody can do."""

from brain.explanation.shape import Explanation
from starling.core.tool_calls import Effect
from tests.support.run_rows import FILES, SHOP, WEATHER, WRITER, RunStory, Told, planned, story_of_five


def tasks_that_wait_for_each_other() -> Explanation:
    story = story_of_five()
    reason = "It is in, or depends on, a cycle of tasks that depend on each other."
    return story.explained(degraded=[{"part": "Pack", "reason": reason}])


def task_before_what_it_needs() -> Explanation:
    story = RunStory()
    story.plan(
        planned("t1", SHOP, "Cancel the delivery"),
        planned("t2", SHOP, "Find the number of the parcel"),
        planned("t3", WEATHER, "How warm is it?"),
    )
    story.start("t1")
    story.write("t1", "I can't: the number of the parcel is needed first.")
    story.end("t1", "No tool was called; the agent wrote: “the number of the parcel is needed first”", "unable")
    story.done("t2", "shop.parcels", {}, "The parcel is 4711.")
    return story.explained()


def file_read_before_it_is_written() -> Explanation:
    story = RunStory()
    story.plan(planned("t1", FILES, "Send report.txt to Ann"), planned("t2", FILES, "Save the report"))
    story.start("t1")
    story.call("t1", "files.read", {"path": "report.txt"}, "There is no such file: report.txt", "tool_error")
    story.start("t2")
    story.call("t2", "files.write", {"path": "report.txt", "text": "x"}, "saved", effect=Effect.UNSAFE)
    story.end("t2", "saved")
    story.end("t1", "files.read failed: There is no such file: report.txt", "tool_error")
    return story.explained()


def call_without_what_another_task_finds() -> Explanation:
    story = RunStory()
    story.plan(planned("t1", SHOP, "Cancel the purchase"), planned("t2", FILES, "Find the order number"))
    story.start("t1")
    story.call("t1", "shop.cancel", {}, "'order_number' is a required property", "invalid_arguments")
    story.end("t1", "shop.cancel failed: 'order_number' is a required property", "invalid_arguments")
    story.done("t2", "files.search", {}, "The order number is 4711.")
    return story.explained()


def placeholder_for_what_another_task_finds() -> Explanation:
    story = RunStory()
    story.plan(planned("t1", SHOP, "Cancel the purchase"), planned("t2", FILES, "Find the order number"))
    story.start("t1")
    story.call("t1", "shop.cancel", {"order": "<order number>"}, "bad order", "tool_error")
    story.end("t1", "shop.cancel failed: bad order", "tool_error")
    story.done("t2", "files.search", {}, "The order number is 4711.")
    return story.explained()


def order_that_a_later_plan_corrects() -> Explanation:
    story = RunStory()
    story.plan(planned("t1", SHOP, "Pay the bill"), planned("t2", SHOP, "Fetch the total"))
    story.start("t1")
    story.call("t1", "shop.pay", {"sum": 0}, "nothing to pay", "tool_error")
    story.end("t1", "shop.pay failed: nothing to pay", "tool_error")
    story.done("t2", "shop.total", {}, "12 EUR")
    story.plan(planned("t1", SHOP, "Pay the bill", ["t2"]), planned("t2", SHOP, "Fetch the total"), version=2)
    story.start("t1.2")
    story.call("t1.2", "shop.pay", {"sum": 12}, "paid")
    story.end("t1.2", "paid")
    return story.explained()


def text_that_lacks_a_later_result() -> Explanation:
    story = RunStory()
    story.plan(planned("t1", WRITER, "Summarise everything"), planned("t2", SHOP, "Read the sales figures"))
    story.start("t1")
    story.write("t1", "The sales figures are not available, so nothing can be said.")
    story.verdict("t1", "APPROVED")
    story.end("t1", "The sales figures are not available, so nothing can be said.")
    story.done("t2", "shop.sales", {}, "1,000 EUR")
    return story.explained()


def unserved_part() -> Explanation:
    story = story_of_five()
    return story.explained(degraded=[{"part": "Book a flight", "reason": "No agent can book flights."}])


def plan_with_too_many_tasks() -> Explanation:
    reason = "A plan may have at most 24 tasks (limits.tasks_per_plan)."
    return story_of_five().explained(degraded=[{"part": "Pack", "reason": reason}])


def plan_with_too_many_rounds() -> Explanation:
    reason = "Its turn would come too late: only 3 more rounds of tasks can run in this run (limits.graph_steps)."
    return story_of_five().explained(degraded=[{"part": "Pack", "reason": reason}])


def part_that_depends_on_one_that_no_agent_can_do() -> Explanation:
    unknown = {"part": "Book a flight", "reason": "There is no agent 'pilot'."}
    dependent = {"part": "Pack", "reason": "It depends on a task that can't be done."}
    return story_of_five().explained(degraded=[dependent, unknown])


def nothing_planned() -> Explanation:
    story = RunStory()
    story.plan()
    reply = (
        "The request couldn't be planned. The model was asked twice, and named no task, gave no reply and said of no "
        "part that it can't be served."
    )
    return story.explained("failed", "empty_plan", reply=reply)


def file_read_after_it_was_deleted(*, was_there: bool = True) -> Explanation:
    story = RunStory()
    story.plan(
        planned("t1", FILES, "Save the report"),
        planned("t2", FILES, "Clean up", ["t1"]),
        planned("t3", FILES, "Send the report to Ann", ["t2"]),
    )
    file = {"path": "report.txt"}
    story.start("t1")
    path = "report.txt" if was_there else "notes.txt"
    story.call("t1", "files.write", {"path": path}, "saved", effect=Effect.IDEMPOTENT)
    story.end("t1", "saved")
    story.start("t2")
    story.call("t2", "files.delete", file, "done", effect=Effect.IDEMPOTENT)
    story.end("t2", "done")
    story.start("t3")
    story.call("t3", "files.read", file, "There is no file report.txt.", "tool_error")
    story.end("t3", "files.read failed: There is no file report.txt.", "tool_error")
    return story.explained()


def file_that_was_never_there() -> Explanation:
    return file_read_after_it_was_deleted(was_there=False)


FAILURES: list[tuple[str, Told]] = [
    ("bad_plan_order", tasks_that_wait_for_each_other),
    ("bad_plan_order", task_before_what_it_needs),
    ("bad_plan_order", file_read_before_it_is_written),
    ("bad_plan_order", call_without_what_another_task_finds),
    ("bad_plan_order", placeholder_for_what_another_task_finds),
    ("bad_plan_order", order_that_a_later_plan_corrects),
    ("bad_plan_order", text_that_lacks_a_later_result),
    ("unmet_tool", unserved_part),
    ("limit_reached", plan_with_too_many_tasks),
    ("limit_reached", plan_with_too_many_rounds),
    ("unmet_tool", part_that_depends_on_one_that_no_agent_can_do),
    ("empty_plan", nothing_planned),
    ("bad_plan_order", file_read_after_it_was_deleted),
    ("wrong_argument", file_that_was_never_there),
]
