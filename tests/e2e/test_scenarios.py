"""A question, a coding task and a check of the system's health, each from Python to its answer on a real platform."""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from starling.client.conversations import Client
from starling.client.orchestrator import Orchestrator, OrchestratorResult
from tests.support.local_access import admin_headers
from tests.support.model_script import Answer, Body, Rule, Script, When
from tests.support.model_server import ModelServer
from tests.support.platform import calls, decision, task, verdict
from tests.support.platform_process import PlatformProcess

SERVERS = {
    "system_health": {
        "command": sys.executable,
        "args": ["-m", "mcp_gateway.servers.system_health"],
        "x-starling": {"effect": "read"},
    }
}
HEALTH = "mcp_agent_system_health"
CODE = "```python\ndef double(x):\n    return 2 * x\n```"
ADVICE = "The disk has room [1]. Recommendation: look at it again next month."


async def handled(
    folder: Path, message: str, channel: str, *rules: Rule
) -> tuple[OrchestratorResult, Sequence[Body], dict[str, Any]]:
    """Send a request from Python; return its result, what the model was asked, and the session."""
    async with (
        ModelServer(Script(*rules)) as model,
        PlatformProcess.running(folder, SERVERS, model.variables) as platform,
    ):
        key = admin_headers(folder / "data")["Authorization"].removeprefix("Bearer ")
        with closing(Client(platform.address, key)) as client:
            orchestrator = Orchestrator(client)
            result = await asyncio.to_thread(orchestrator.handle_user_request, "mac", message, "MODERATE", channel)
            session = await asyncio.to_thread(client.get, "/v1/threads/mac")
        return result, model.bodies, session


def made(result: OrchestratorResult) -> list[str]:
    """The calls of a run in order: roles of models, and names of tools."""
    names = {"llm_call": "model_role", "tool_call": "tool_name"}
    return [step["metadata"][names[step["type"]]] for step in result["steps"] if step["type"] in names]


async def test_plain_question_is_answered_by_one_call_of_a_model(open_folder: Path) -> None:
    replies = Rule(decision(reply="Paris is the capital of France."), When(schema="supervisor_decision"))

    result, asked, session = await handled(open_folder, "What is the capital of France?", "CHAT", replies)

    assert result["reply"] == "Paris is the capital of France."
    assert (len(asked), made(result), session["session_metrics"]["tool_calls"]) == (1, ["reasoning"], 0)


async def test_coding_task_is_one_call_of_the_coding_model_that_is_reviewed(open_folder: Path) -> None:
    rules = Rule(verdict("APPROVED"), When(schema="verdict")), Rule(Answer(CODE), When(contains="You are a programmer"))

    result, asked, session = await handled(open_folder, "Write a function that doubles.", "CODE_TASK", *rules)

    assert CODE in result["reply"]
    assert (made(result), len(asked)) == (["coding", "reasoning"], 2)
    assert [one["agent"] for one in session["last_plan"]["tasks"]] == ["coder"]


async def test_health_check_measures_first_and_then_sums_up_with_recommendations(open_folder: Path) -> None:
    result, asked, session = await handled(
        open_folder,
        "How is my machine's health?",
        "SYSTEM_HEALTH",
        Rule(decision(task("t1", HEALTH, "measure the disk")), When(schema="supervisor_decision")),
        Rule(verdict("APPROVED"), When(schema="verdict")),
        Rule(calls(("disk", {})), When(contains='<task id="t1">')),
        Rule(Answer(ADVICE), When(contains="You write the final answer")),
    )

    measured, told = "system_health.disk", str(asked[0]["messages"])
    assert result["reply"].startswith(ADVICE)
    assert made(result) == ["reasoning", "router", measured, "reasoning", "reasoning"]
    assert "agents that measure it go first" in told
    assert "total" in str(asked[-1]["messages"])
    assert (session["session_metrics"]["tool_calls"], session["session_metrics"]["errors"]) == (1, 0)
