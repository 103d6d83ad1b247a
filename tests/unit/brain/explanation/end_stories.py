"""Runs that end from outside, by a fault below their agents, or in a team."""

from dataclasses import replace

from brain.explanation.shape import Explanation
from tests.support.run_rows import RUN, WEATHER, RunStory, Told, planned, story_of_five


def member_that_fails() -> Explanation:
    story = RunStory()
    story.plan(planned("t1", "machines", "Look after the machines"), planned("t2", WEATHER, "How warm is it?"))
    story.start("t1")
    story.plan(planned("t1", "looker", "Look at the disk"), planned("t2", "fixer", "Mend it", ["t1"]), star="t1")
    story.start("t1/t1")
    story.call("t1/t1", "bench.look", {"thing": "dsk"}, "There is no dsk.", "tool_error")
    story.end("t1/t1", "bench.look failed: There is no dsk.", "tool_error")
    story.end("t1", "looker: bench.look failed: There is no dsk.", "tool_error")
    story.done("t2", "weather.now", {}, "18 degrees")
    return story.explained()


def member_whose_part_is_missing() -> Explanation:
    story = RunStory()
    story.plan(planned("t1", "machines", "Look after the machines"))
    story.start("t1")
    story.plan(planned("t1", "looker", "Look at the disk"), planned("t2", "fixer", "Mend the fan"), star="t1")
    story.start("t1/t2")
    story.end("t1/t2", "The agent said that it has no tool for fans.", "unable")
    story.done("t1/t1", "bench.look", {"thing": "disk"}, "fine")
    story.end("t1", "The disk is fine.")
    return story.explained()


def cancelled() -> Explanation:
    story = story_of_five()
    story.start("t3")
    story.end("t3", "The run was cancelled.", "cancelled")
    return story.explained("cancelled", "cancelled")


def parked() -> Explanation:
    story = story_of_five()
    story.run = replace(RUN, crashes=3)
    story.warn("parked", "The run was parked: 3 times its worker went down.", kind="error")
    return story.explained("parked", "parked")


def out_of_time() -> Explanation:
    story = story_of_five()
    story.warn("deadline_exceeded", "The run's time ran out before the answer was complete.", kind="error")
    return story.explained("failed", "deadline_exceeded")


def unknown_end() -> Explanation:
    return story_of_five().explained("failed", "something_new")


def _failed_task(text: str, code: str) -> Explanation:
    story = story_of_five()
    story.start("t3")
    story.end("t3", text, code)
    return story.explained()


def agent_that_says_it_can_not() -> Explanation:
    story = story_of_five()
    story.start("t3")
    story.write("t3", "I have no tool that knows prices.")
    story.end("t3", "No tool was called; the agent wrote: “I have no tool that knows prices.”", "unable")
    return story.explained()


def team_whose_goal_is_not_clear() -> Explanation:
    text = "No team was built, because the goal leaves open what it should do. Which prices do you mean?"
    return _failed_task(text, "goal_unclear")


def team_that_failed_its_proof() -> Explanation:
    story = RunStory()
    story.plan(planned("t1", "architect", "Build a team that looks after machines"))
    story.start("t1")
    story.plan(planned("t1", "looker", "Look at the disk"), star="t1.case1")
    story.start("t1.case1/t1")
    story.call("t1.case1/t1", "bench.look", {"thing": "dsk"}, "There is no dsk.", "tool_error")
    story.end("t1.case1/t1", "bench.look failed: There is no dsk.", "tool_error")
    story.end("t1", "machines@1 was stored, but its proof failed: case1 has no answer.", "proof_failed")
    return story.explained("failed", "no_result")


def version_that_is_not_there() -> Explanation:
    return _failed_task("There is no version 7 of the team machines.", "not_found")


def runtime_that_failed() -> Explanation:
    return _failed_task("The runtime 'crewai' failed at task t3: KeyError: 'agent'.", "runtime_failed")


def runtime_that_the_worker_lacks() -> Explanation:
    text = "Task t3 was begun by the runtime 'crewai', which this worker doesn't have."
    return _failed_task(text, "runtime_unavailable")


def task_that_can_not_be_resumed() -> Explanation:
    text = "The model request of task t3 at position 0 differs from the recorded one."
    return _failed_task(text, "journal_diverged")


def _ended(code: str, message: str) -> Explanation:
    story = story_of_five()
    story.start("t3")
    story.warn(code, message, kind="error")
    return story.explained("failed", code)


def decision_that_can_not_be_resumed() -> Explanation:
    message = "The model request of task supervisor/1 at position 0 differs from the recorded one."
    return _ended("journal_diverged", message)


def fault_of_the_platform() -> Explanation:
    return _ended("internal", "Something went wrong inside Starling (run 018f0000-0000-7000-8000-000000000001).")


def too_many_steps() -> Explanation:
    return _ended("recursion_limit", "The run took too many steps without an answer.")


def failure_with_a_code_that_no_rule_knows() -> Explanation:
    return _failed_task("It did not work out.", "something_new")


FAILURES: list[tuple[str, Told]] = [
    ("failed_team_member", member_that_fails),
    ("failed_team_member", member_whose_part_is_missing),
    ("cancelled_by_user", cancelled),
    ("parked_run", parked),
    ("deadline_exceeded", out_of_time),
    ("failed_run", unknown_end),
    ("unable_agent", agent_that_says_it_can_not),
    ("build_failed", team_whose_goal_is_not_clear),
    ("build_failed", team_that_failed_its_proof),
    ("build_failed", version_that_is_not_there),
    ("runtime_failed", runtime_that_failed),
    ("runtime_failed", runtime_that_the_worker_lacks),
    ("journal_diverged", task_that_can_not_be_resumed),
    ("journal_diverged", decision_that_can_not_be_resumed),
    ("internal_error", fault_of_the_platform),
    ("limit_reached", too_many_steps),
    ("failed_task", failure_with_a_code_that_no_rule_knows),
]
