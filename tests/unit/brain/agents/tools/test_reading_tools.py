"""What a task depends on and is shown in part can be read on in, though it is no artifact."""

import json
from typing import Any

from brain.agents.tools.reading_tools import ArtifactTool
from brain.agents.turn.agent_runtime import TaskExecution
from brain.agents.turn.prompt_building import begin
from brain.registry.cards import AgentCard
from brain.state import TaskOutcome
from starling.core.settings.schema import Limits
from starling.core.tracing import NOOP_TRACER
from tests.support.absent_services import DISABLED_ARTIFACT_STORE
from tests.support.in_memory_run import make_execution
from tests.support.runtime_harness import dispatch
from tests.support.scripted_gateway import tool

LONG = "\n".join(f"disk {number:04} is fine, as it was on the day before" for number in range(400))
BENCH = AgentCard("bench", "specialist", "Looks.", server="bench", tools=(tool("look"),))


def dependent(*outputs: str) -> TaskExecution:
    needed = [
        TaskOutcome(task_id=f"t{n}", agent="bench", status="approved", output=one, reason="", attempts=1, tools=[])
        for n, one in enumerate(outputs)
    ]
    sent = dispatch("find disk 0123", "bench", path="t9", request="How is it?", needed=needed)
    return TaskExecution(make_execution().context, BENCH, sent, "t9")


async def read(execution: TaskExecution, **arguments: Any) -> str:
    return (await ArtifactTool(DISABLED_ARTIFACT_STORE, Limits(), NOOP_TRACER).call(execution, arguments)).text


async def test_cut_result_is_listed_and_read_on_under_the_id_of_its_task() -> None:
    execution, at = dependent(LONG, "short"), LONG.index("disk 0300")

    await begin(execution, 0, None)

    prompt = execution.messages[-1].content
    assert json.dumps({"id": "t0", "characters": len(LONG), "from": "bench", "task_id": "t0"}) in prompt
    assert "disk 0123" in prompt
    assert "disk 0300" not in prompt
    assert (await read(execution, offset=at, length=9)).startswith("disk 0300\n[characters ")
    assert (await read(execution, artifact="t0", find="DISK 0300")).startswith(f"{at}: ")


async def test_whole_results_are_not_listed() -> None:
    assert dependent(LONG[:6_001], "short").artifacts == {}
