"""Agents with many tools: which are shown, how others are found, and that a resumed task is shown the same."""

from collections.abc import Sequence
from typing import Any

import pytest

from brain.agents.tools.tool_finder import ToolFinder
from brain.registry.cards import AgentCard
from brain.retrieval.agent_finder import AgentFinder
from brain.retrieval.search import AgentSearch
from brain.state import TaskOutcome
from starling.core.clock import SystemClock
from starling.core.errors import LLMServerError
from starling.core.llm import ModelRequest
from starling.core.tool_calls import Effect
from starling.core.tools import ToolDefinition
from starling.core.tracing import NOOP_TRACER
from tests.support.in_memory_run import Execution, ScriptedAnswer, make_execution, tool_calls
from tests.support.model_documents import verdict_json
from tests.support.runtime_harness import dispatch, pipeline_of, tool_access
from tests.support.scripted_gateway import ScriptedGateway

APPROVED = verdict_json("APPROVED")
FIND: tuple[str, dict[str, Any]] = ("find_tools", {"query": "kettle of the kitchen"})
BOIL: tuple[str, dict[str, Any]] = ("boil_kettle", {})
LAMP: tuple[str, dict[str, Any]] = ("lamp_7", {})
GO_ON: tuple[str, dict[str, Any]] = ("continue", {})
STOPPED = LLMServerError("scripted:small", "stopped here")


def tool(name: str, description: str) -> ToolDefinition:
    return ToolDefinition("house", name, description, {"type": "object"}, None, Effect.READ, f"hash of {name}")


def house(lamps: int) -> AgentCard:
    tools = [tool(f"lamp_{number}", f"Switch lamp {number} on or off.") for number in range(lamps)]
    tools += [tool("boil_kettle", "Boil water in the kettle of the kitchen."), tool("find_tools", "Find the toolbox.")]
    return AgentCard("house", "specialist", "A house.", "house", tuple(tools))


class AnotherRanking(AgentFinder):
    """Ranks the other way round, as an index does that has changed since."""

    async def rank_tools(self, search: AgentSearch, card: AgentCard, text: str, limit: int) -> list[str]:
        return sorted(tool.name for tool in card.tools)[:limit]


def begin(*answers: ScriptedAnswer, lamps: int = 30, **fields: Any) -> Execution:
    return make_execution(*answers, agents=[house(lamps)], **fields)


async def run(
    begun: Execution, gateway: ScriptedGateway, ranker: AgentFinder | None = None, most: int = 20
) -> TaskOutcome:
    finder = ToolFinder(ranker or AgentFinder(None, SystemClock()), NOOP_TRACER, most)
    sent = dispatch("switch lamp 7 on", "house", request="Switch lamp 7 on.", whole_plan=True)
    return await pipeline_of(tool_access(gateway, finder=finder)).run(begun.context, sent)


def shown(request: ModelRequest) -> Sequence[str]:
    return [spec.name for spec in request.tools]


def called(gateway: ScriptedGateway) -> Sequence[str]:
    return [call.tool.name for call in gateway.calls]


async def test_agent_with_many_tools_is_shown_those_that_fit_its_task() -> None:
    begun = begin(tool_calls(LAMP), APPROVED)

    outcome = await run(begun, ScriptedGateway())

    names = shown(begun.model.requests[0])
    assert outcome["status"] == "approved"
    assert len(names) == 20 + len(("continue", "find_tools"))
    assert {"lamp_7", "continue", "find_tools"} <= {*names}
    assert "boil_kettle" not in names


async def test_agent_with_few_tools_is_shown_all_and_keeps_its_own_tool_of_that_name() -> None:
    begun, gateway = begin(tool_calls(("find_tools", dict[str, Any]())), APPROVED, lamps=18), ScriptedGateway()

    await run(begun, gateway)

    assert len(shown(begun.model.requests[0])) == 20 + len(("continue",))
    assert called(gateway) == ["find_tools"]


async def test_tools_that_were_found_are_shown_in_the_next_request_and_are_no_result() -> None:
    begun, gateway = begin(tool_calls(FIND), tool_calls(BOIL), APPROVED), ScriptedGateway()

    outcome = await run(begun, gateway)

    first, second, review = begun.model.requests
    assert "boil_kettle" not in shown(first)
    assert {*shown(first), "boil_kettle"} <= {*shown(second)}
    assert "boil_kettle: Boil water in the kettle of the kitchen" in second.messages[-1].content
    assert "find_tools" not in review.messages[-1].content
    assert (outcome["output"], called(gateway)) == ("boil_kettle is done", ["boil_kettle"])
    assert [event["name"] for event in begun.events("tool_start")] == ["find_tools", "house.boil_kettle"]


async def test_tool_that_is_not_shown_can_be_called_by_its_name() -> None:
    begun, gateway = begin(tool_calls(BOIL), APPROVED), ScriptedGateway()

    outcome = await run(begun, gateway)

    assert (outcome["status"], called(gateway)) == ("approved", ["boil_kettle"])


@pytest.mark.parametrize("arguments", [{}, {"query": ""}, {"text": "kettle"}])
async def test_search_without_a_query_is_answered_with_what_it_takes(arguments: dict[str, Any]) -> None:
    begun = begin(tool_calls(("find_tools", arguments)), tool_calls(LAMP), APPROVED)

    outcome = await run(begun, ScriptedGateway())

    assert "takes a `query`" in begun.model.requests[1].messages[-1].content
    assert outcome["status"] == "approved"


async def test_resumed_task_asks_with_the_same_tools_whatever_the_ranking_is_now() -> None:
    begun = begin(tool_calls(FIND), tool_calls(BOIL, GO_ON), STOPPED)
    await run(begun, ScriptedGateway())
    begun.sink.entries[:] = [entry for entry in begun.sink.entries if entry.kind != "result"]

    resumed, gateway = begin(tool_calls(LAMP), APPROVED, after=begun), ScriptedGateway()
    outcome = await run(resumed, gateway, AnotherRanking(None, SystemClock()))

    assert outcome["status"] == "approved"
    assert (called(gateway), "journal_diverged" in resumed.warnings) == (["lamp_7"], False)
    assert resumed.model.requests[0].tools == begun.model.requests[-1].tools


async def test_task_that_was_stopped_before_its_tools_were_recorded_is_shown_those_that_fit() -> None:
    begun = begin(STOPPED)
    await run(begun, ScriptedGateway())
    begun.sink.entries[:] = [entry for entry in begun.sink.entries if (entry.path, entry.kind) == ("t1", "context")]

    resumed = begin(tool_calls(LAMP), APPROVED, after=begun)
    await run(resumed, ScriptedGateway())

    assert len(shown(resumed.model.requests[0])) == 20 + len(("continue", "find_tools"))
