"""Runs whose agents follow skills that no longer fit."""

from dataclasses import replace

from brain.explanation.rows import SkillRow
from brain.explanation.shape import Explanation
from brain.skills.skill import SkillCall
from tests.support.run_rows import RUN, Told, story_of_five

SKILL = SkillRow(
    "018f0000-0000-7000-8000-0000000000aa",
    "active",
    "",
    "Look up the price of {item}",
    (SkillCall("shop.price", {"item": {"slot": "item", "from": "task"}, "list": "2024"}),),
)


def skill_with_an_old_constant() -> Explanation:
    story = story_of_five()
    story.skills.append(SKILL)
    story.start("t3")
    story.call("t3", "shop.price", {"item": "coat", "list": "2024"}, "The list 2024 was closed.", "tool_error")
    story.end("t3", "shop.price failed: The list 2024 was closed.", "tool_error", skills=[SKILL.id])
    return story.explained()


def skill_whose_result_is_rejected() -> Explanation:
    story = story_of_five()
    story.skills.append(SKILL)
    for _ in range(3):
        story.start("t3")
        story.call("t3", "shop.price", {"item": "coat", "list": "2024"}, "80 EUR, two years ago")
        story.verdict("t3", "REJECTED", "The price is outdated.")
    story.end("t3", "The price is outdated.", "rejected", skills=[SKILL.id])
    return story.explained()


def skill_of_a_changed_tool() -> Explanation:
    story = story_of_five()
    slots = SkillCall("shop.price", {"item": {"slot": "item", "from": "task"}})
    story.skills.append(replace(SKILL, state="suspended", reason="shop.price has changed.", calls=(slots,)))
    story.start("t3")
    story.call("t3", "shop.price", {"item": "coat"}, "shop.price was changed by its server.", "removed")
    story.end("t3", "shop.price failed: it was changed by its server.", "removed", skills=[SKILL.id])
    return story.explained()


def _example_of_an_earlier_request(*, asked: str = "2024") -> Explanation:
    story = story_of_five()
    slots = {"item": {"slot": "item", "from": "task"}, "list": {"slot": "list", "from": "request", "example": "2024"}}
    story.run = replace(RUN, input="What does a coat cost? There are the lists 2024 and 2026.")
    story.skills.append(replace(SKILL, calls=(SkillCall("shop.price", slots),)))
    for _ in range(2):
        story.start("t3")
        story.call("t3", "shop.price", {"item": "coat", "list": asked}, "80 EUR")
        story.verdict("t3", "REJECTED", "That holds no longer.")
    story.end("t3", "That holds no longer.", "rejected", skills=[SKILL.id])
    return story.explained()


def example_of_an_earlier_request_in_each_attempt() -> Explanation:
    return _example_of_an_earlier_request()


def other_value_than_that_of_the_skill() -> Explanation:
    return _example_of_an_earlier_request(asked="2026")


FAILURES: list[tuple[str, Told]] = [
    ("stale_skill", skill_with_an_old_constant),
    ("stale_skill", skill_whose_result_is_rejected),
    ("stale_skill", skill_of_a_changed_tool),
    ("stale_skill", example_of_an_earlier_request_in_each_attempt),
    ("wrong_verdict", other_value_than_that_of_the_skill),
]
