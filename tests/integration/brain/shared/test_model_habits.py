"""Habits of models: read without asking again, and their reasoning reaches nobody."""

import json
from dataclasses import dataclass, field, replace

import pytest

from tests.integration.brain.shared.test_final_answer import typed
from tests.support.model_script import Answer
from tests.support.platform import BENCH, Platform, ScriptedModel, Workbench, calls, verdict

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOOK = calls(("look", {"thing": "disk"}))
CALL = '{"name": "look", "arguments": {"thing": "disk"}}'
THOUGHT = "SECRET thoughts about the disk"
FINE = "The disk is fine [1]."


def planned(agent: str = BENCH) -> str:
    """A decision of the members that a small model writes."""
    return json.dumps({"selected_agents": [{"task_id": "t1", "agent": agent, "task": "look at the disk"}]})


@dataclass(frozen=True)
class Habit:
    """Answers of one run; what isn't set is as it should be."""

    plan: Answer = field(default_factory=lambda: Answer(planned()))
    agent: Answer = LOOK
    verdict: Answer = field(default_factory=lambda: verdict("APPROVED"))
    final: Answer = field(default_factory=lambda: Answer(FINE))


HABITS = {
    "reasoning before JSON": Habit(plan=Answer(f"<think>\n{THOUGHT}: {{bench}}\n</think>\n\n{planned()}")),
    "reasoning in a stream": Habit(final=Answer(f"<think>{THOUGHT}, and so on.</think>\n{FINE}")),
    "reasoning with another marker": Habit(final=Answer(f"<thinking>\n{THOUGHT}\n</thinking>\n{FINE}")),
    "reasoning in a field of its own": Habit(
        plan=Answer(planned(), reasoning=THOUGHT),
        agent=replace(LOOK, reasoning=THOUGHT),
        final=Answer(FINE, reasoning=THOUGHT),
    ),
    "reasoning without its beginning, as in an earlier reply": Habit(
        plan=Answer(f"{THOUGHT}.\n</think>\n\n{planned()}"), final=Answer(f"{THOUGHT}.\n</think>\n\n{FINE}")
    ),
    "reasoning before a call": Habit(agent=replace(LOOK, content=f"<think>{THOUGHT}</think>")),
    "JSON within prose": Habit(plan=Answer(f"Sure! Here it is:\n```json\n{planned()}\n```\nShall I go on?")),
    "JSON after a sentence": Habit(verdict=Answer('I have looked at it. {"status": "APPROVED"}')),
    "JSON as Python writes it": Habit(verdict=Answer("{'status': 'APPROVED', 'changed': None,}")),
    "a verdict of one member": Habit(verdict=Answer('{"status": "APPROVED"}')),
    "an agent named by its server": Habit(plan=Answer(planned("bench"))),
    "a tool named with its server": Habit(agent=calls(("Bench_Look", {"thing": "disk"}))),
    "a call as text with markers": Habit(agent=Answer(f"<tool_call>\n{CALL}\n</tool_call>")),
    "a call as JSON": Habit(agent=Answer(CALL)),
    "a call as Llama writes it": Habit(agent=Answer(f"<|python_tag|>{CALL.replace('arguments', 'parameters')}")),
}


@pytest.mark.parametrize("habit", HABITS.values(), ids=HABITS)
async def test_habits_of_models_are_read_and_reasoning_is_never_sent(
    platform: Platform, script: ScriptedModel, workbench: Workbench, habit: Habit
) -> None:
    script.supervisor(habit.plan)
    script.agent("t1", habit.agent)
    script.reviewer(habit.verdict)
    script.qa(habit.final)

    stream = await platform.ask("How is the disk?")

    assert (stream.status, stream.reply, typed(stream)) == ("succeeded", FINE, FINE)
    assert workbench.done() == ["look disk"]
    assert [event["agent"] for event in stream.of("task_start")] == [BENCH]
    assert stream.codes == []
    assert stream.done["usage"]["model_calls"] == len(platform.model.requests) == 4  # nothing had to be asked again
    assert THOUGHT not in json.dumps([event.data for event in stream.events])
