"""The tool `note`, and what the answer says of tools that are lost: at the level of one task."""

from dataclasses import replace
from typing import Any

import pytest

from brain.registry.cards import AgentCard
from brain.state import TaskOutcome
from starling.core.settings.schema import Limits
from starling.core.tool_calls import Observation
from starling.core.tools import ToolCall, ToolOutcome
from tests.support.in_memory_run import Execution, make_execution, tool_calls
from tests.support.model_documents import verdict_json
from tests.support.runtime_harness import dispatch, pipeline_of, tool_access
from tests.support.scripted_gateway import ScriptedGateway, tool

BENCH = AgentCard("bench", "specialist", "Looks.", server="bench", tools=(tool("look"), tool("order")))
LOOK = ("look", {"thing": "disk"})
APPROVED = verdict_json("APPROVED")


def note(value: object, key: str = "state") -> tuple[str, dict[str, Any]]:
    return "note", {"key": key, "value": value}


async def run(begun: Execution, gateway: ScriptedGateway | None = None, **limits: Any) -> TaskOutcome:
    access = tool_access(gateway or ScriptedGateway(), Limits(**limits))
    return await pipeline_of(access).run(begun.context, dispatch(agent="bench", has_dependents=True))


def offered(begun: Execution) -> list[str]:
    return [spec.name for spec in begun.model.requests[0].tools]


async def test_note_counts_within_the_limit_of_calls() -> None:
    begun = make_execution(tool_calls(LOOK, note(1)), "Done.", APPROVED, agents=[BENCH])

    outcome = await run(begun, tool_calls_per_task=1)

    assert begun.warnings == ["limit_reached"]
    assert (outcome["status"], "facts" in outcome) == ("approved", False)


async def test_tool_of_a_server_that_is_called_note_is_the_one_that_is_meant() -> None:
    own, gateway = replace(BENCH, tools=(tool("note"),)), ScriptedGateway()
    begun = make_execution(tool_calls(note("fine")), APPROVED, agents=[own])

    outcome = await run(begun, gateway)

    assert [call.tool.full_name for call in gateway.calls] == ["bench.note"]
    assert (offered(begun).count("note"), "facts" in outcome) == (1, False)


async def test_task_that_an_earlier_version_began_is_not_offered_the_tool() -> None:
    first = make_execution(tool_calls(LOOK), APPROVED, agents=[BENCH])
    await run(first)
    first.sink.entries[:] = [
        replace(entry, data={name: value for name, value in entry.data.items() if name != "may_note"})
        for entry in first.sink.entries
        if entry.kind == "context"
    ]
    resumed = make_execution(tool_calls(LOOK), APPROVED, agents=[BENCH], after=first)

    outcome = await run(resumed)

    assert ("note" in offered(first), "note" in offered(resumed)) == (True, False)
    assert outcome["status"] == "approved"


@pytest.mark.parametrize(
    "arguments",
    [
        *({"key": "mark", "value": value} for value in (None, "", "x" * 201, [1], {"a": 1})),
        *({"key": key, "value": 1} for key in ("k" * 65, "</state_context>", "")),
        {"key": "mark"},
        {"key": "mark", "value": 1, "of": "all"},
    ],
    ids=repr,
)
async def test_note_that_is_no_fact_is_refused_and_can_be_corrected(arguments: dict[str, Any]) -> None:
    begun = make_execution(tool_calls(("note", arguments)), tool_calls(note(True), LOOK), APPROVED, agents=[BENCH])

    outcome = await run(begun)

    assert [(fact["key"], fact["value"]) for fact in outcome.get("facts", ())] == [("state", True)]


async def test_tool_that_is_lost_is_named_beside_an_approved_result() -> None:
    def answer(call: ToolCall) -> ToolOutcome:
        if call.tool.name == "order":
            return ToolOutcome(Observation.NOT_SENT, "Its definition was changed.", code="quarantined")
        return ToolOutcome(Observation.COMPLETED, "the disk is fine")

    begun = make_execution(tool_calls(LOOK, ("order", {})), APPROVED, agents=[BENCH])

    outcome = await run(begun, ScriptedGateway(answer))

    expected = {"part": "what bench.order would have answered", "reason": "Its definition was changed."}
    assert (outcome["status"], outcome.get("degraded")) == ("approved", [expected])
