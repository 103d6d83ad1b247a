"""What only the runtime `crewai` has: its prompts, its threads, its last request, and its own failures."""

import asyncio
import sys
import time
from dataclasses import replace
from typing import Any

import pytest

import brain.agents.runtimes.crew
from brain.agents.runtimes.crew import environment
from brain.interrupts.budget import OUT_OF_TIME
from brain.registry.cards import AgentCard
from starling.core.agents import Persona
from starling.core.errors import RunCancelledError
from starling.core.llm import ModelReply
from starling.core.settings.schema import Limits
from starling.core.tool_calls import Observation
from starling.core.tools import ToolCall, ToolOutcome
from tests.support.in_memory_run import Execution, make_execution, tool_calls
from tests.support.model_documents import verdict_json
from tests.support.runtime_harness import END, TOOLS, RuntimeHarness, dispatch
from tests.support.scripted_gateway import ScriptedGateway

APPROVED = verdict_json("APPROVED")
LOOK = tool_calls(("look", {"thing": "tea"}))
PARALLEL = tool_calls(*(("look", {"thing": number}) for number in range(4)))


def begin(*answers: Any, persona: Persona | None = None, after: Execution | None = None) -> Execution:
    card = AgentCard("buyer", "custom", "Buys.", tools=TOOLS, runtime="crewai", persona=persona)
    return make_execution(*answers, agents=[card], after=after)


def sent(begun: Execution, request: int = 0) -> list[str]:
    return [message.content for message in begun.model.requests[request].messages]


async def test_persona_and_task_are_escaped_and_otherwise_reach_the_model_as_they_are() -> None:
    persona = Persona(role="Buyer {goal} <b>", goal="Tea & {tools}", backstory="Knows {input} </task>.")
    begun = begin(LOOK, END, APPROVED, persona=persona)

    await RuntimeHarness("crewai").run(begun, "order {role} </task> {tool_names} <<goal>>")

    system, user = sent(begun)
    assert system.startswith("You are Buyer {goal} &lt;b&gt;. Knows {input} &lt;/task&gt;.")
    assert system.endswith("Your personal goal is: Tea &amp; {tools}")
    assert "order {role} &lt;/task&gt; {tool_names} &lt;&lt;goal&gt;&gt;</task>" in user


async def test_agent_without_a_persona_is_called_by_its_name() -> None:
    begun = begin(LOOK, END, APPROVED)

    await RuntimeHarness("crewai").run(begun)

    assert sent(begun)[0].startswith("You are buyer.")


async def test_first_messages_are_recorded_and_a_resumed_agent_begins_with_them() -> None:
    harness = RuntimeHarness("crewai")
    begun = begin(LOOK, END, APPROVED, persona=Persona(role="Buyer", goal="Tea."))
    await harness.run(begun)
    begun.sink.entries[:] = [entry for entry in begun.sink.entries if entry.kind in ("context", "tool")]
    resumed = begin(END, APPROVED, persona=Persona(role="Another", goal="Coffee."), after=begun)

    await harness.run(resumed)

    assert sent(resumed)[:2] == sent(begun)


@pytest.mark.parametrize(
    ("tools", "before"), [(TOOLS, [LOOK]), ((), [])], ids=["after calls of its tools", "without tools"]
)
@pytest.mark.parametrize(
    "text",
    [
        "Thought: I need tea.\nAction: sip\nAction Input: {}",
        "Thought: done\nFinal Answer: tea",
        '{"tool_calls": []}',
        "Observation: nothing ```",
    ],
)
async def test_answer_in_words_is_the_output_as_the_model_wrote_it(
    text: str, tools: tuple[Any, ...], before: list[Any]
) -> None:
    harness = RuntimeHarness("crewai", tools=tools)
    begun = harness.begin(*before, text, APPROVED)

    outcome = await harness.run(begun)

    assert outcome["output"] == text
    assert len(begun.model.requests) == len(before) + 2


@pytest.mark.parametrize(
    ("tools", "answers", "shown"),
    [((), [END], [END]), (TOOLS, [LOOK, END], []), (TOOLS, [END], [])],
    ids=["without tools", "after calls", "unable"],
)
async def test_output_is_shown_where_no_answer_is_made_of_it(
    tools: tuple[Any, ...], answers: list[Any], shown: list[str]
) -> None:
    harness = RuntimeHarness("crewai", tools=tools)
    begun = harness.begin(*answers, APPROVED)

    await harness.pipeline().run(begun.context, {**dispatch(), "whole_plan": True})

    assert [event["content"] for event in begun.events("thinking")] == shown


async def test_last_request_at_the_limit_of_iterations_has_no_tools_and_is_counted() -> None:
    harness = RuntimeHarness("crewai", limits=Limits(tool_iterations=2))
    begun = harness.begin(LOOK, LOOK, replace(LOOK, content="That is all that I found."), APPROVED)

    outcome = await harness.run(begun)

    assert [len(request.tools) for request in begun.model.requests] == [3, 3, 0, 0]
    assert begun.model.requests[2].messages[-1].role == "user"
    assert "ignore" not in sent(begun, 2)[-1]  # which is what CrewAI tells it of all earlier instructions
    assert outcome["output"] == "That is all that I found."
    assert (begun.context.budget.meter.model_calls, begun.context.budget.meter.tool_calls) == (4, 2)


@pytest.mark.parametrize("text", [f"Action:{' ' * 3_000}x", "Thought: done\nAction: look\nAction Input: {}"])
async def test_last_answer_is_not_looked_through_for_actions(text: str) -> None:
    harness = RuntimeHarness("crewai", limits=Limits(tool_iterations=1))
    await harness.run(harness.begin(END, APPROVED))  # imports CrewAI
    begun = harness.begin(LOOK, text, APPROVED)
    start = time.process_time()

    outcome = await harness.run(begun)

    assert outcome["output"] == text
    assert time.process_time() - start < 3  # CrewAI's expression takes 10 s for it, and holds the interpreter


async def test_last_request_without_an_answer_in_words_gives_the_results() -> None:
    harness = RuntimeHarness("crewai", limits=Limits(tool_iterations=1))
    begun = harness.begin(LOOK, ModelReply(""), APPROVED)

    outcome = await harness.run(begun)

    assert outcome["output"] == "look is done"


async def test_answer_in_words_after_a_call_without_a_result_text_is_reviewed_and_the_call_made_once() -> None:
    gateway = ScriptedGateway(lambda call: ToolOutcome(Observation.COMPLETED, ""))
    harness = RuntimeHarness("crewai", gateway)
    begun = harness.begin(tool_calls(("order", {"item": "tea"})), END, APPROVED)

    outcome = await harness.run(begun)

    assert (outcome["status"], outcome["output"]) == ("approved", END)
    assert len(gateway.calls) == 1


async def test_failure_inside_crewai_fails_the_task_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "brain.agents.runtimes.crew.runtime", None)  # as if its installation was damaged
    monkeypatch.delattr(brain.agents.runtimes.crew, "runtime", raising=False)
    begun = begin(LOOK)

    outcome = await RuntimeHarness("crewai").run(begun)

    assert (outcome["status"], outcome.get("code")) == ("failed", "runtime_failed")
    assert begun.model.requests == []


async def test_fifty_agents_at_once_end_on_the_threads_of_eight() -> None:
    gateway = ScriptedGateway()
    harness = RuntimeHarness("crewai", gateway, crews=8)
    pipeline = harness.pipeline()
    begun = [harness.begin(PARALLEL, LOOK, END, APPROVED) for _ in range(50)]

    async with asyncio.timeout(120):
        outcomes = await asyncio.gather(*(pipeline.run(one.context, dispatch()) for one in begun))

    assert {outcome["status"] for outcome in outcomes} == {"approved"}
    assert len(gateway.calls) == 250


async def test_agent_for_which_no_thread_is_free_until_the_deadline_fails_while_the_others_work() -> None:
    gateway = _Held()
    harness = RuntimeHarness("crewai", gateway, crews=1)
    pipeline = harness.pipeline()
    begun, late = harness.begin(LOOK), harness.begin(LOOK, seconds=0.1)
    first = asyncio.ensure_future(pipeline.run(begun.context, dispatch()))
    await gateway.reached.wait()

    async with asyncio.timeout(60):
        outcome = await pipeline.run(late.context, dispatch())

    assert (outcome["status"], outcome["reason"]) == ("failed", OUT_OF_TIME)
    assert not first.done()
    first.cancel()
    await asyncio.wait([first])


async def test_listeners_of_crewai_are_removed_before_another_thread_can_do_it_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime = await asyncio.to_thread(environment.crewai_runtime)
    alone: list[bool] = []
    monkeypatch.setattr(runtime, "remove_listeners", lambda: alone.append(vars(environment)["_IMPORTING"].locked()))

    await asyncio.to_thread(environment.crewai_runtime)

    assert alone == [True]


async def test_thread_of_a_cancelled_agent_is_free_for_the_next_and_a_waiting_one_never_begins() -> None:
    gateway = _Held()
    harness = RuntimeHarness("crewai", gateway, crews=1)
    pipeline = harness.pipeline()
    begun = [harness.begin(PARALLEL, END, APPROVED) for _ in range(3)]
    first, second = (asyncio.ensure_future(pipeline.run(one.context, dispatch())) for one in begun[:2])
    await gateway.reached.wait()

    for task in (second, first):
        task.cancel()
    await asyncio.wait([first, second])
    gateway.held = False
    outcome = await pipeline.run(begun[2].context, dispatch())

    assert first.cancelled()
    assert second.cancelled()
    assert outcome["status"] == "approved"
    assert [len(one.model.requests) for one in begun] == [1, 0, 3]
    assert begun[0].events("tool_result") == []


async def test_error_that_is_none_of_ours_is_not_taken_for_a_result() -> None:
    def cancelled(call: ToolCall) -> ToolOutcome:
        raise RunCancelledError(call.id) if call.tool.name == "look" else KeyError(call.id)

    harness = RuntimeHarness("crewai", ScriptedGateway(cancelled))

    with pytest.raises(RunCancelledError):
        await harness.run(harness.begin(LOOK))
    with pytest.raises(ExceptionGroup, match="unhandled errors"):
        await harness.run(harness.begin(tool_calls(("put", {}))))


class _Held(ScriptedGateway):
    """Answers nothing while it is held."""

    def __init__(self) -> None:
        super().__init__()
        self.held = True
        self.reached = asyncio.Event()

    async def call(self, call: ToolCall, deadline: Any, record: Any = None) -> ToolOutcome:
        self.reached.set()
        while self.held:
            await asyncio.get_running_loop().create_future()
        return ToolOutcome(Observation.COMPLETED, call.id)
