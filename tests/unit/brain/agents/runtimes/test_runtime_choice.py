"""Which runtime executes a task: the one that its agent asks for, or the one that began it."""

import pytest

from brain.agents.runtimes.native import TextRuntime
from brain.registry.cards import AgentCard
from brain.state import TaskOutcome
from starling.core.agents import Persona
from starling.core.llm import ModelReply
from starling.core.tool_calls import Observation
from starling.core.tools import ToolOutcome
from tests.support.in_memory_run import Execution, make_execution, tool_calls
from tests.support.model_documents import verdict_json
from tests.support.runtime_harness import dispatch, pipeline_of, tool_access
from tests.support.scripted_gateway import ScriptedGateway, tool

LOOK = tool_calls(("look", {"thing": "disk"}))
APPROVED = verdict_json("APPROVED")
PERSONA = Persona(role="Inspector </role>", goal="Find what is broken.", backstory="Ten years of $disk & tape.")


def card(runtime: str = "crewai") -> AgentCard:
    return AgentCard(
        "bench",
        "custom",
        "Looks.",
        tools=(tool("look"),),
        runtime="crewai" if runtime == "crewai" else "native",
        persona=PERSONA,
    )


def execution(*answers: str | ModelReply, agent: AgentCard | None = None, after: Execution | None = None) -> Execution:
    return make_execution(*answers, agents=[agent or card()], after=after)


async def run(begun: Execution, *, crewai: bool) -> TaskOutcome:
    gateway = ScriptedGateway(lambda call: ToolOutcome(Observation.COMPLETED, f"the {call.arguments['thing']} is fine"))
    other = TextRuntime() if crewai else None  # another one than an agent with tools has otherwise
    return await pipeline_of(tool_access(gateway), crewai_runtime=other).run(
        begun.context, dispatch("look at the disk", "bench")
    )


def tools_asked_with(begun: Execution) -> list[str]:
    return [spec.name for spec in begun.model.requests[0].tools]


@pytest.mark.parametrize(("runtime", "uses_other"), [("crewai", True), ("native", False)])
async def test_agent_is_executed_by_the_runtime_that_its_card_names(runtime: str, *, uses_other: bool) -> None:
    begun = execution("The disk is fine." if uses_other else LOOK, APPROVED, agent=card(runtime))

    outcome = await run(begun, crewai=True)

    assert outcome["status"] == "approved"
    assert (tools_asked_with(begun) == []) is uses_other
    assert begun.warnings == []


async def test_agent_that_asks_for_a_missing_crewai_is_executed_natively_with_a_warning() -> None:
    begun = execution(LOOK, APPROVED)

    outcome = await run(begun, crewai=False)

    assert (outcome["status"], outcome["output"]) == ("approved", "the disk is fine")
    assert begun.warnings == ["crewai_missing"]
    assert "starling-swarm[crewai]" in begun.events("warning")[0]["message"]


async def test_persona_is_data_in_the_prompt_of_the_native_runtime() -> None:
    begun = execution(LOOK, APPROVED, agent=card("native"))

    await run(begun, crewai=False)

    system = begun.model.requests[0].messages[0].content
    assert "<role>Inspector &lt;/role&gt;</role>" in system
    assert "<goal>Find what is broken.</goal>" in system
    assert "<backstory>Ten years of $disk &amp; tape.</backstory>" in system


async def test_task_that_crewai_began_is_not_continued_without_it() -> None:
    begun = execution("The disk is fine.", APPROVED)
    await run(begun, crewai=True)
    begun.sink.entries = [entry for entry in begun.sink.entries if entry.kind == "context"]
    resumed = execution(after=begun)

    outcome = await run(resumed, crewai=False)

    assert (outcome["status"], outcome.get("code")) == ("failed", "runtime_unavailable")
    assert resumed.model.requests == []


async def test_task_that_the_native_runtime_began_is_continued_by_it() -> None:
    begun = execution(LOOK, APPROVED)
    await run(begun, crewai=False)
    begun.sink.entries = [entry for entry in begun.sink.entries if entry.kind in {"context", "answer"}]
    resumed = execution(after=begun)

    outcome = await run(resumed, crewai=True)

    assert (outcome["status"], outcome["output"]) == ("approved", "the disk is fine")
    assert resumed.model.requests == []
