"""Runs that fail by what they may do: tokens, keys, approvals, kill switches, and calls in doubt."""

from dataclasses import replace
from datetime import timedelta

from brain.explanation.explain import explain
from brain.explanation.rows import KeyRow
from brain.explanation.shape import Explanation
from starling.core.principal import Grant
from starling.core.tool_calls import CallState, Effect
from tests.support.run_rows import BEGAN, RUN, WEATHER, RunStory, Told, planned, story_of_five

KEY = "018f0000-0000-7000-8000-0000000000bb"


def refused_budget() -> Explanation:
    story = story_of_five()
    story.model("t1", 900)
    story.ask("budget", "cancelled", "t3", reason="The run has used 1000 of 1000 tokens.")
    story.start("t3")
    story.end("t3", "The token budget of the run is used up: 1000 of 1000 tokens.", "budget_exhausted")
    return story.explained("budget_exhausted", "budget_exhausted")


def budget_of_a_team() -> Explanation:
    story = RunStory()
    story.plan(planned("t1", "machines", "Look after the machines"), planned("t2", WEATHER, "How warm is it?"))
    story.start("t1")
    story.plan(planned("t1", "looker", "Look at the disk"), star="t1")
    story.start("t1/t1")
    story.end("t1/t1", "The token budget of the team is used up: 50 of 40 tokens.", "budget_exhausted")
    story.end("t1", "looker: The token budget of the team is used up: 50 of 40 tokens.", "budget_exhausted")
    story.done("t2", "weather.now", {}, "18 degrees")
    return story.explained()


def revoked_key() -> Explanation:
    story = story_of_five()
    story.run = replace(RUN, key_id=KEY)
    story.start("t3")
    reason = f"The key {KEY}, which this run was requested with, was revoked. The tool was not called."
    story.call("t3", "shop.price", {"item": "coat"}, reason, "switched_off")
    story.end("t3", f"shop.price failed: {reason}", "switched_off")
    rows = replace(story.rows(), key=KeyRow("shopper", BEGAN + timedelta(seconds=3)))
    return explain(rows, story.now)


def tool_outside_the_grant() -> Explanation:
    story = story_of_five()
    story.run = replace(RUN, key_id=KEY, grant=Grant(servers=frozenset({"weather"})))
    story.start("t3")
    story.call("t3", "shop.price", {"item": "coat"}, "The grant doesn't include shop.price.", "not_allowed")
    story.end("t3", "shop.price failed: The grant doesn't include shop.price.", "not_allowed")
    return story.explained()


def approval_without_answer() -> Explanation:
    story = story_of_five()
    story.done("t3", "shop.price", {"item": "coat"}, "80 EUR")
    story.start("t4")
    story.ask("approval", "expired", "t4", call={"name": "shop.order", "args": {"item": "coat"}})
    text = "The call of shop.order was not approved: there was no answer in time. The tool was not called."
    story.call("t4", "shop.order", {"item": "coat"}, text, "not_approved", effect=Effect.UNSAFE)
    story.end("t4", text, "not_approved")
    return story.explained()


def approval_refused() -> Explanation:
    story = story_of_five()
    story.start("t4")
    story.ask("approval", "resolved", "t4", payload={"approved": False}, call={"name": "shop.order", "args": {}})
    text = "The call of shop.order was refused: too dear. The tool was not called."
    story.call("t4", "shop.order", {"item": "coat"}, text, "not_approved", effect=Effect.UNSAFE)
    story.end("t4", text, "not_approved")
    return story.explained()


def lost_answer_of_an_effect() -> Explanation:
    story = story_of_five()
    story.start("t4")
    text = "The connection to shop was lost. Whether it changed anything is unknown."
    in_doubt = CallState.IN_DOUBT
    story.call("t4", "shop.order", {"item": "coat"}, text, "server_unavailable", effect=Effect.UNSAFE, state=in_doubt)
    story.ask("in_doubt", "expired", "t4")
    story.end("t4", "The call of shop.order was interrupted; whether it took effect is unknown.", "outcome_unknown")
    return story.explained()


def unusable_answer_of_an_effect() -> Explanation:
    story = story_of_five()
    story.start("t4")
    text = "The result of shop.order violates its output schema. The call was done or may have been done."
    unusable = CallState.UNUSABLE
    story.call("t4", "shop.order", {"item": "coat"}, text, "invalid_result", effect=Effect.UNSAFE, state=unusable)
    story.end("t4", text, "invalid_result")
    return story.explained()


def switched_off_server() -> Explanation:
    story = story_of_five()
    story.start("t3")
    text = "The server shop is switched off: under review The tool was not called."
    story.call("t3", "shop.price", {"item": "coat"}, text, "switched_off")
    story.end("t3", f"shop.price failed: {text}", "switched_off")
    return story.explained()


FAILURES: list[tuple[str, Told]] = [
    ("lost_budget", refused_budget),
    ("lost_budget", budget_of_a_team),
    ("revoked_grant", revoked_key),
    ("revoked_grant", tool_outside_the_grant),
    ("expired_approval", approval_without_answer),
    ("refused_approval", approval_refused),
    ("effect_in_doubt", lost_answer_of_an_effect),
    ("effect_in_doubt", unusable_answer_of_an_effect),
    ("switched_off", switched_off_server),
]
