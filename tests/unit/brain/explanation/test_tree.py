"""The tree of a run."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from brain.explanation.rows import StepRow
from brain.explanation.tree import TreeNode, run_tree
from tests.support.run_rows import RunStory, planned


def shape(node: TreeNode) -> tuple[object, ...]:
    """A node and what is below it."""
    return (node.kind, node.state, *(shape(child) for child in node.children))


def called(story: RunStory, path: str) -> None:
    """A step of a tool call."""
    story.steps.append(StepRow(len(story.steps) + 1, "tool_call", "", {"path": path}, story.now))


class CountedSteps(list[StepRow]):
    """Steps that count how often they are gone through."""

    passes = 0

    def __iter__(self) -> Iterator[StepRow]:
        self.passes += 1
        return super().__iter__()


def test_steps_are_gone_through_once_however_many_tasks_a_run_has() -> None:
    story = RunStory()
    story.plan(*(planned(f"t{n}", "mcp_agent_shop", "Find the price") for n in range(20)))
    for n in range(20):
        story.start(f"t{n}")
        story.model(f"t{n}", 10)
        story.end(f"t{n}", "80 EUR")
    steps = CountedSteps(story.steps)

    tree = run_tree(replace(story.rows(), steps=steps), story.now)

    assert [child.tokens for child in tree.root.children] == [10] * 20
    assert steps.passes == 1


def test_attempts_have_the_calls_and_models_that_were_theirs() -> None:
    story = RunStory()
    story.plan(planned("t1", "mcp_agent_shop", "Find the price"))
    story.model("supervisor/1", 5, duration_ms=1_250.0)
    for status in ("REJECTED", "APPROVED"):
        story.start("t1")
        story.model("t1", 10)
        story.call("t1", "shop.price", {}, "80 EUR")
        called(story, "t1")
        story.model("t1/review", 3)
        story.verdict("t1", status)
    story.end("t1", "80 EUR")

    tree = run_tree(story.rows(), story.now)

    verdict = ("verdict", "REJECTED", ("model", "answered"))
    first = ("attempt", "rejected", ("model", "answered"), ("call", "succeeded"), verdict)
    supervisor, task = tree.root.children
    assert shape(supervisor) == ("supervisor", "planned", ("model", "answered"))
    assert shape(task)[:3] == ("task", "approved", first)
    assert [child.tokens for child in task.children] == [13, 13]
    assert [supervisor.seconds, *(child.seconds for child in supervisor.children)] == [1.25, 1.25]


def test_tasks_of_a_team_are_below_the_task_of_the_team() -> None:
    story = RunStory()
    story.plan(planned("t1", "machines", "Look after the machines"))
    story.start("t1")
    story.plan(planned("t1", "looker", "Look"), star="t1")
    story.model("t1/supervisor/1", 5)
    story.start("t1/t1")
    story.model("t1/t1", 7)
    story.end("t1/t1", "fine")
    story.end("t1", "fine")

    (task,) = run_tree(story.rows(), story.now).root.children

    assert [(child.kind, child.text) for child in task.children] == [
        ("supervisor", "decision 1: It is needed."),
        ("task", "t1/t1 looker: Look"),
        ("attempt", "attempt 1"),
    ]
    assert task.tokens == 12


def test_call_that_waits_for_approval_says_so_in_place_of_running_and_of_a_duration() -> None:
    story = RunStory()
    story.plan(planned("t1", "mcp_agent_shop", "Order a coat"), planned("t2", "mcp_agent_shop", "Find the price"))
    story.start("t1")
    story.model("t1", 10, duration_ms=40.0)
    asked = story.begin_call("t1", "shop.order", {"item": "coat"})
    story.ask("approval", "open", "t1", call={"name": "shop.order", "call_id": asked})
    story.start("t2")
    story.begin_call("t2", "shop.price", {"item": "coat"})

    waiting, question, working = run_tree(story.rows("waiting"), story.now + timedelta(seconds=4)).root.children

    model = ("model", "answered")
    state = "waiting for approval"
    assert shape(waiting) == ("task", state, ("attempt", state, model, ("call", state)))
    assert shape(working) == ("task", "running", ("attempt", "running", ("call", "running")))
    assert [waiting.seconds, working.seconds, waiting.children[0].children[1].seconds] == [None, None, None]
    assert question.text.startswith("waits for approval at t1")
    assert question.seconds == 7.0


def test_task_takes_from_the_beginning_of_its_first_step_to_the_end_of_its_last() -> None:
    story = RunStory()
    story.plan(*(planned(f"t{n}", "mcp_agent_shop", "Find the price") for n in (1, 2, 3)))
    for number, measured in enumerate(({"duration_ms": 250.0}, {"duration_ms": 0.1}, {}), start=1):
        story.start(f"t{number}")
        story.model(f"t{number}", 10, **measured)
        story.end(f"t{number}", "80 EUR")

    found = run_tree(story.rows(), story.now).root.children

    assert [child.seconds for child in found] == [0.25, 0.0, None]


def test_task_that_never_began_and_what_the_run_waits_for_are_in_the_tree() -> None:
    story = RunStory()
    story.plan(planned("t1", "mcp_agent_shop", "Find the price"))
    story.ask("approval", "open", "t1")

    found = run_tree(story.rows("waiting"), story.now).root.children

    assert {(child.kind, child.state) for child in found} == {("task", "not begun"), ("wait", "open")}


def test_tree_of_a_pruned_run_says_what_is_no_longer_kept() -> None:
    rows = RunStory().rows()

    found = run_tree(replace(rows, run=replace(rows.run, trimmed=9)), rows.run.created_at)

    assert found.pruned == ["Events 1 to 9 and all steps were deleted by retention."]
