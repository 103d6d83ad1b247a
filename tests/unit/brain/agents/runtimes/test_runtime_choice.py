"""Which runtime executes a task: the one that its agent asks for, or the one that began it."""

import pytest

from brain.agents.runtimes.native import NativeRuntime, TextRuntime
from brain.agents.tools.reading_tools import ArtifactTool
from brain.agents.tools.tool_calling import ToolAccess
from brain.agents.turn.pipeline import Pipeline
from brain.agents.turn.reflection import Reviewer
from brain.registry.cards import AgentCard
from brain.state import GraphTask, TaskDispatch, TaskOutcome
from starling.core.agents import Persona
from starling.core.llm import ModelReply
from starling.core.settings.schema import Limits
from starling.core.tool_calls import Observation
from starling.core.tools import ToolOutcome
from starling.core.tracing import NOOP_TRACER
from tests.support.absent_services import DISABLED_ARTIFACT_STORE
from tests.support.in_memory_run import Execution, make_execution, tool_calls
from tests.support.model_documents import verdict_json
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
    pipeline = Pipeline(
        tool_runtime=NativeRuntime(
            ToolAccess(gateway, ArtifactTool(DISABLED_ARTIFACT_STORE, Limits(), NOOP_TRACER), Limits())
        ),
        text_runtime=TextRuntime(),
        reviewer=Reviewer(NOOP_TRACER),
        tracer=NOOP_TRACER,
        history_messages=5,
        crewai_runtime=TextRuntime() if crewai else None,  # another one than an agent with tools has otherwise
    )
    task = GraphTask(id="t1", agent="bench", task="look at the disk", depends_on=[], status="running")
    dispatch = TaskDispatch(
        input_request="How is the disk?",
        path="t1",
        messages=[],
        task=task,
        whole_plan=False,
        needed=[],
        global_state={},
    )
    return await pipeline.run(begun.context, dispatch)


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
