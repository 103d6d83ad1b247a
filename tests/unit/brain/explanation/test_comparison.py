"""Two runs side by side."""

from dataclasses import replace

import pytest

from brain.explanation.comparison import compare
from starling.core.run_document.document import RunDocument
from tests.support.run_story import RUN, RunStory, planned

PARTS = {
    "request": ("request", "request"),
    "plan": ("plan", "version 1"),
    "call": ("call", "t1, attempt 1, call 1"),
    "verdict": ("verdict", "t1, attempt 1"),
    "answer": ("end", "answer"),
}


def looked(city: str, *, verdict: str = "APPROVED", text: str = "18 degrees") -> RunStory:
    """A run with one task, which looked a city up."""
    story = RunStory()
    story.plan(planned("t1", "mcp_agent_weather", "How warm is it in Lima?"))
    story.start("t1")
    story.call("t1", "weather.now", text, args={"city": city})
    story.verdict("t1", verdict)
    story.end("t1", text, "" if verdict == "APPROVED" else "rejected")
    return story


def told(first: RunDocument, second: RunDocument) -> tuple[str, str] | None:
    """The kind and the place of the first difference."""
    found = compare(first, second).first_difference
    return (found.kind, found.place) if found else None


def test_equal_runs_do_not_differ() -> None:
    found = compare(looked("Lima").document(), looked("Lima").document())

    assert (found.first_difference, found.differences, found.same_request) == (None, [], True)
    assert {part.kind for part in found.parts} >= {"request", "epoch", "plan", "call", "verdict", "task", "end"}


def test_first_difference_comes_first_and_its_consequences_after_it() -> None:
    found = compare(looked("Lima").document(), looked("Rome", verdict="REJECTED").document("failed", "no_result"))

    assert [(part.kind, part.place) for part in found.differences][:4] == [
        ("call", "t1, attempt 1, call 1"),
        ("verdict", "t1, attempt 1"),
        ("task", "t1"),
        ("end", "status"),
    ]
    assert found.text == "The runs differ first in call (t1, attempt 1, call 1)."
    assert found.first_difference
    assert ("Lima" in str(found.first_difference.a), "Rome" in str(found.first_difference.b)) == (True, True)


def test_effects_and_cost_of_both_runs_are_compared() -> None:
    paid = {"name": "till.pay", "args": {"eur": 3}, "state": "succeeded", "call_id": "t1.0.0"}
    usage = {"tokens": 1200, "model_calls": 3, "tool_calls": 1}
    first = looked("Lima").document(effects=[paid], usage=usage)
    second = looked("Lima").document(effects=[], usage={**usage, "tokens": 40})

    found = compare(first, second)

    assert [(part.kind, part.a, part.b) for part in found.differences] == [
        ("effects", 'till.pay {"eur":3}: succeeded', "none"),
        ("cost", "1,200 tokens, 3 model calls, 1 tool calls", "40 tokens, 3 model calls, 1 tool calls"),
    ]


def test_runs_of_different_requests_are_said_to_be_so() -> None:
    second = looked("Lima").document()
    second = replace(second, input="Something else.")

    found = compare(looked("Lima").document(), second)

    assert (found.same_request, found.text.startswith("The requests of the runs differ.")) == (False, True)


def test_other_epoch_and_other_wording_of_a_prompt_are_differences() -> None:
    first, second = looked("Lima"), looked("Lima")
    first.model("t1", 10, prompt={"name": "specialist", "hash": "aa" * 32, "source": "file", "version": "1"})
    second.model("t1", 10, prompt={"name": "specialist", "hash": "bb" * 32, "source": "langfuse", "version": "7"})

    assert told(first.document(), second.document()) == ("prompt", "specialist")
    assert told(first.document(), replace(second.document(), epoch=2)) == ("epoch", "epoch")


def test_prompt_that_only_one_run_used_is_told_last() -> None:
    first, second = looked("Lima"), looked("Rome")
    second.model("qa/1", 10, prompt={"name": "qa", "hash": "cc" * 32, "source": "local"})

    found = compare(first.document(), second.document())

    assert [(part.kind, part.place) for part in (found.differences[0], found.differences[-1])] == [
        ("call", "t1, attempt 1, call 1"),
        ("prompt", "qa"),
    ]


def test_call_that_only_one_run_made_stands_where_it_was_made() -> None:
    first, second = looked("Lima"), RunStory()
    second.plan(planned("t1", "mcp_agent_weather", "How warm is it in Lima?"))
    second.start("t1")
    second.call("t1", "weather.now", "18 degrees", args={"city": "Lima"})
    second.call("t1", "weather.unit", "Celsius")
    second.verdict("t1", "APPROVED")
    second.end("t1", "18 degrees")

    found = compare(first.document(), second.document())

    assert [(part.kind, part.place, part.a is None) for part in found.differences] == [
        ("call", "t1, attempt 1, call 2", True)
    ]


def test_pruned_run_is_said_to_be_so() -> None:
    gone = RunStory(run=replace(RUN, trimmed=5)).document()

    assert compare(looked("Lima").document(), gone).unread[0] == "Run B: Events 1 to 5 were deleted by retention."


@pytest.mark.parametrize("part", ["request", "plan", "call", "verdict", "answer"])
def test_difference_behind_what_is_shown_of_a_text_is_found_and_shown(part: str) -> None:
    def run_with(word: str) -> RunDocument:
        texts = {name: "so " * 1200 + (word if name == part else "same") for name in PARTS}
        story = RunStory()
        story.plan(planned("t1", "mcp_agent_weather", texts["plan"]))
        story.start("t1")
        story.call("t1", "weather.now", "18 degrees", args={"city": texts["call"]})
        story.verdict("t1", "APPROVED", texts["verdict"])
        story.end("t1", "18 degrees")
        return replace(story.document(), input=texts["request"], result={"reply": texts["answer"]})

    found = compare(run_with("Lima"), run_with("Rome"))

    assert [(one.kind, one.place) for one in found.differences] == [PARTS[part]]
    assert found.first_difference
    assert ("so Lima" in str(found.first_difference.a), "so Rome" in str(found.first_difference.b)) == (True, True)
    assert len(str(found.first_difference.a)) <= 301
