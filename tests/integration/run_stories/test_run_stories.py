"""Runs of ordinary days: an explanation names the true cause of what is missing, and nothing else.

The stories say what a person who watched would call the cause. `CODES` maps those words to the codes of the product.
"""

import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import orjson
import pytest
import pytest_asyncio

from starling.app.cli.platform.late_imports import run_document
from starling.core.json import JsonObject
from starling.core.run_document.builder import RunDocumentBuilder
from starling.core.run_document.document import RunDocument
from starling.core.run_document.rows import EventRow
from tests.integration.run_stories.answered_runs import ANSWERED
from tests.integration.run_stories.further_runs import FURTHER
from tests.integration.run_stories.incomplete_runs import INCOMPLETE
from tests.integration.run_stories.story import Cause, Story
from tests.integration.run_stories.story_runner import UNSAFE, Played, Stage, open_stage
from tests.support.soak import rounds
from tests.support.sse import Event

pytestmark = pytest.mark.asyncio(loop_scope="module")

STORIES: Final = (*INCOMPLETE, *ANSWERED, *FURTHER)
_TIMES: Final = ("at", "ended_at", "result_at", "ms")
SCORES: Final = {"APPROVED": 1, "FIXED": 0.8, "REJECTED": 0}
CODES: Final[Mapping[str, str]] = {
    "approval expired": "expired_approval",
    "approval refused": "refused_approval",
    "budget used up": "lost_budget",
    "call in doubt": "effect_in_doubt",
    "call reached its time limit": "call_timed_out",
    "cancelled by the caller": "cancelled_by_user",
    "clarification expired": "unanswered_question",
    "clarification withdrawn": "unanswered_question",
    "iteration limit": "limit_reached",
    "missing grant": "not_allowed",
    "model answered in no valid form": "unreadable_model_output",
    "model failed": "model_unavailable",
    "model reached its time limit": "model_unavailable",
    "no progress": "limit_reached",
    "part left out by the plan": "unserved_part",
    "plan in an impossible order": "bad_plan_order",
    "plan was empty": "empty_plan",
    "rejected by the review": "rejected_result",
    "result violated its schema": "invalid_result",
    "run deadline": "deadline_exceeded",
    "server unreachable": "degraded_server",
    "switched off": "switched_off",
    "tool reported an error": "tool_failed",
    "unknown agent": "unknown_agent",
    "unknown tool": "unknown_tool",
    "wrong arguments": "wrong_argument",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Stage]:
    async with open_stage(module_database_url, tmp_path_factory.mktemp("stories")) as stage:
        yield stage


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def played(stage: Stage) -> Mapping[str, Played]:
    """All stories, played on one platform."""
    return await stage.play(STORIES)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
async def test_run_ends_as_its_story_says(played: Mapping[str, Played], story: Story) -> None:
    run = played[story.name]

    assert run.record["status"] == story.status, run.record
    assert run.events[-1].type == "done"
    assert run.explanation_status == 200
    assert {tool: run.made.get(tool, 0) for tool in story.made} == story.made
    causes = causes_of(story)
    if not causes:
        assert run.record["result"]["degraded"] == []
    else:
        results = [event.data for event in run.events if event.type == "task_result"]
        approved = {result["task_id"] for result in results if result["status"] == "approved"}
        assert all(approved.isdisjoint(cause.tasks) for cause in causes)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
async def test_explanation_names_the_true_cause_or_none(played: Mapping[str, Played], story: Story) -> None:
    explanation = played[story.name].explanation
    named = [(cause["task"], cause["code"]) for cause in explanation["causes"]]

    assert [one for one in named if not any(is_right(cause, *one) for cause in causes_of(story))] == []
    assert [cause for cause in causes_of(story) if not any(is_right(cause, *one) for one in named)] == []
    assert explanation["cause"] == (explanation["causes"][0] if named else None)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
async def test_streamed_events_tell_what_the_stored_run_tells(played: Mapping[str, Played], story: Story) -> None:
    run, builder = played[story.name], RunDocumentBuilder()
    for event in run.events:
        builder.take(EventRow(event.id, event.type, event.data), datetime.now(UTC))

    assert told(builder.document()) == told(run_document(run.record))


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
async def test_states_tell_each_task_and_call_once_with_its_verdict(played: Mapping[str, Played], story: Story) -> None:
    run = played[story.name]
    states = {state["position"]: state for state in run.states}
    given = {one["data"]["correlation_id"]: one for one in run.states if one["t"] == "AgentCallState"}
    called = {one["data"]["id"]: one for one in run.states if one["t"] == "ToolCallState"}
    of_tasks = results_of(run.states, "AgentResultState", "correlation_id")
    of_calls = results_of(run.states, "ToolResultState", "tool_call_id")
    waits = {one["data"]["correlation_id"] for one in run.states if one["t"] == "WaitingState"}
    verdicts, ended, calls = told_by_events(run.events)

    assert sorted(states) == list(range(1, len(states) + 1))
    assert [states[1]["t"], states[len(states)]["t"]] == ["UserMessageState", "FinishedState"]
    assert given.keys() == ended.keys() == of_tasks.keys() - waits
    assert called.keys() == calls.keys() == of_calls.keys()
    assert len(states) == len({state["reference"] for state in run.states})
    for path, call in given.items():
        result, team = of_tasks[path], path.rpartition("/")[0]
        assert call["parent"] == result["parent"] == (given[team]["position"] if team else None)
        assert (call["agent"], result["agent"]) == (ended[path]["agent"],) * 2
        fixed = "FIXED" in [verdict for (place, _), verdict in verdicts.items() if place == path]
        assert result["data"]["score"] == {"approved": 0.8 if fixed else 1, "failed": 0}[ended[path]["status"]]
    for call_id, (name, path, attempt, failed) in calls.items():
        call, result = called[call_id], of_calls[call_id]
        assert call["parent"] == result["parent"] == given[path]["position"]
        assert (call["data"]["function_name"], result["data"]["tool_name"], call["agent"]) == (
            name, name, given[path]["agent"],
        )  # fmt: skip
        reward = SCORES.get(verdicts.get((path, attempt), ""), 0 if failed else None)
        assert result["data"].get("reward") == reward


@rounds(2, 1, name="share")
async def test_forks_ask_no_model_for_what_they_inherit_and_change_nothing(
    stage: Stage, played: Mapping[str, Played], share: int
) -> None:
    forks = await stage.fork([*played.values()][::share])

    inherited, answered = 0, set[str]()
    for fork in (fork for of_story in forks.values() for fork in of_story):
        results = [event.data for event in fork.events if event.type == "task_result"]
        begun = {event.data["task_id"] for event in fork.events if event.type == "task_start"}
        kept = {result["task_id"] for result in results if result.get("inherited")} - begun
        of_kept = re.compile(rf'<task id="({"|".join(kept) or "-"})"( agent="[^"]*")?>')  # of its agent and reviewer
        assert fork.events[-1].type == "done"
        assert [text for text in fork.asked if of_kept.search(text)] == []
        assert {tool for tool, count in fork.made.items() if count and tool.partition(".")[0] in UNSAFE} == set()
        inherited += len(kept)
        answered |= {str(event.data["simulated"]) for event in fork.events if event.type == "tool_result"}
    assert (inherited > 20 / share, answered) == (True, {"fixture", "simulated", "None"})

    causes = [cause for story in STORIES for cause in causes_of(story)]
    tasks = {task_id for story in STORIES for task_id in (*story.agents, "t2")}
    used = {category for item in causes for category in (*item.categories, *item.never)}

    assert used - tasks <= CODES.keys()
    assert all({*item.categories, *item.tasks}.isdisjoint(item.never) for item in causes)


def results_of(states: Sequence[Mapping[str, Any]], kind: str, key: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the results of a kind by what they are the results of; there is one of each."""
    found = [state for state in states if state["t"] == kind]
    results = {state["data"][key]: state for state in found}
    assert len(results) == len(found)
    return results


def told_by_events(events: Sequence[Event]) -> tuple[dict[tuple[str, int], str], dict[str, Any], dict[str, Any]]:
    """Return verdicts by attempt, ends of tasks, and the name, task, attempt and failure of each call."""
    verdicts, ended, calls, attempts = (
        dict[tuple[str, int], str](),
        dict[str, Any](),
        dict[str, Any](),
        dict[str, int](),
    )
    for event in events:
        data = event.data
        if event.type == "task_start":
            attempts[data["path"]] = data["attempt"]
        elif event.type == "reflection":
            verdicts[data["path"], data["attempt"]] = data["status"]
        elif event.type == "task_result":
            ended[data["path"]] = data
        elif event.type == "tool_start":
            calls[data["call_id"]] = (data["name"], data["path"], attempts[data["path"]], True)
        elif event.type == "tool_result":
            calls[data["call_id"]] = (*calls[data["call_id"]][:3], data["status"] == "failed")
    return verdicts, ended, calls


def told(document: RunDocument) -> JsonObject:
    """Return what a document has of events, without their times, which a stream lacks."""
    known = json.loads(
        orjson.dumps(document), object_hook=lambda one: {k: v for k, v in one.items() if k not in _TIMES}
    )
    return {name: known[name] for name in ("status", "plans", "tasks", "notices", "builds", "logs", "events")}


def causes_of(story: Story) -> Sequence[Cause]:
    return (story.cause, *story.also) if story.cause else ()


def is_right(cause: Cause, place: str | None, code: str) -> bool:
    """Whether a witness of this cause would agree with one that is named."""
    task_id = place.partition(".")[0] if place else None
    return task_id in cause.tasks and code in {CODES[category] for category in cause.categories}
