"""The supervisor node: what it decides without a model, what it asks one, and when it stops asking."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime

from brain.interrupts.budget import OUT_OF_TIME, OUT_OF_TOKENS
from brain.nodes.supervisor import SupervisorNode
from brain.planning.plan_validation import UNREACHED
from brain.planning.shortlist import Shortlister
from brain.registry.cards import AgentCard
from brain.retrieval.agent_finder import AgentFinder
from brain.run.context import RunContext
from brain.state import GraphState, GraphTask, TaskOutcome, Update, after, initial_state
from starling.core.clock import SystemClock
from starling.core.embeddings import CachingEmbedder, Vector
from starling.core.errors import LLMConnectionError, LLMInvalidResponse
from starling.core.runs import Run, RunConfig
from starling.core.settings.schema import Limits
from starling.core.teams.stars import StarSpec
from starling.core.tool_calls import Effect
from starling.core.tools import ToolDefinition
from starling.core.tracing import NOOP_TRACER
from tests.support.in_memory_run import Execution, make_execution, make_run, stored_interrupt
from tests.support.model_documents import decision_json, task

BENCH = AgentCard("bench", "specialist", "Looks at things.", server="bench")
AGENTS = (BENCH, AgentCard("away", "specialist", "Is away.", server="away", degraded="The server is away."))
GARBAGE = '{"plan": "none"}'
QUESTION = decision_json(question="Which disk?", options=["the first", "the second"])


class Sessions:
    """Remembers which servers were warmed."""

    def __init__(self) -> None:
        self.warmed: list[str] = []

    def warm(self, server: str) -> None:
        self.warmed.append(server)


class AwayEmbedder:
    """An embedder whose endpoint can't be reached."""

    name = "away:model"
    dimensions = 0

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        raise LLMConnectionError(self.name, "it is away.")

    async def kept(self, tenant: str, texts: Sequence[str]) -> Mapping[str, Vector]:
        return {}

    async def embed_and_keep(self, tenant: str, texts: Sequence[str]) -> list[Vector]:
        return await self.embed(texts)

    async def former(self, texts: Mapping[str, Sequence[str]]) -> CachingEmbedder | None:
        return None

    async def close(self) -> None:
        """Nothing is open."""


def supervisor(
    sessions: Sessions | None = None, *, embedder: CachingEmbedder | None = None, **limits: Any
) -> SupervisorNode:
    steps, at_once = limits.pop("graph_steps", 200), limits.pop("parallel_tasks", 8)
    given = Limits(**limits)
    shortlister = Shortlister(AgentFinder(embedder, SystemClock()), given.shortlist, NOOP_TRACER)
    return SupervisorNode(
        given, shortlister, sessions or Sessions(), NOOP_TRACER, graph_steps=steps, parallel_tasks=at_once
    )


async def step(node: SupervisorNode, state: GraphState, execution: Execution) -> Update:
    return await node(state, Runtime(context=execution.context))


async def suspended(node: SupervisorNode, state: GraphState, execution: Execution) -> list[str]:
    """Run the node in a graph of its own and return the ids of the interrupts that it waits for."""
    graph: StateGraph[GraphState, RunContext, GraphState, GraphState] = StateGraph(GraphState, RunContext)
    graph.add_node("supervisor", node)
    graph.add_edge(START, "supervisor")
    graph.add_edge("supervisor", END)
    reached = await graph.compile().ainvoke(state, context=execution.context)
    return [key for item in reached["__interrupt__"] for key in item.value]


def record(task_id: str, status: Any = "pending", *after: str) -> GraphTask:
    return GraphTask(id=task_id, agent="bench", task=f"do {task_id}", depends_on=list(after), status=status)


def outcome(task_id: str, status: Any = "approved", **fields: Any) -> TaskOutcome:
    output, reason = ("fine", "") if status == "approved" else ("", "It broke.")
    return TaskOutcome(
        task_id=task_id, agent="bench", status=status, output=output, reason=reason, attempts=1, tools=[], **fields
    )


def planned(*tasks: GraphTask, results: list[TaskOutcome] | None = None, **routing: Any) -> GraphState:
    """The state after one decision that planned these tasks."""
    begun = initial_state("How is the disk?")
    update = {"tasks": list(tasks), "results": results or [], "plan": ["look"]}
    return after(begun, update | {"routing": begun["routing"] | {"decisions": 1, "plan_version": 1} | routing})


FAILED = planned(record("t1", "failed"), results=[outcome("t1", "failed")])


def clock_agent(**fields: Any) -> AgentCard:
    about = "Get the current time in a timezone."
    listed = ToolDefinition("time", "get_current_time", about, {}, None, Effect.READ, "0")
    return AgentCard("mcp_agent_time", "specialist", "Tells the time.", "time", (listed,), **fields)


NOON = decision_json(reply="It is noon.")
TO_CLOCK = decision_json(task("t1", "mcp_agent_time"))
NOT_LOOKED_UP = "Not looked up: no agent was asked for this answer."


async def test_direct_reply_is_sent_back_where_an_agent_certainly_has_a_tool() -> None:
    execution = make_execution(NOON, TO_CLOCK, agents=[clock_agent(), *AGENTS])

    update = await step(supervisor(), initial_state("Hello. What time is it in Lima?"), execution)

    assert (update["reply"], update["next_step"]) == ("", ["t1"])
    first, second = execution.model.requests
    assert second.messages[: len(first.messages)] == first.messages
    assert [message.role for message in second.messages] == ["system", "user", "assistant", "user"]


@pytest.mark.parametrize(
    ("again", "reply"),
    [
        (decision_json(reply="It is noon in Lima."), "It is noon in Lima."),
        (decision_json(), "It is noon."),
        (LLMConnectionError("scripted:small", "it is away."), "It is noon."),
    ],
    ids=["repeated", "empty", "error"],
)
async def test_direct_reply_that_was_sent_back_stands_and_is_marked(again: str | Exception, reply: str) -> None:
    answers = [NOON, again, again] if reply == "It is noon." and isinstance(again, str) else [NOON, again]
    execution = make_execution(*answers, agents=[clock_agent()])

    update = await step(supervisor(), initial_state("What time is it in Lima?"), execution)

    assert update["reply"] == f"{reply}\n\n{NOT_LOOKED_UP}"
    assert (update["next_step"], update["routing"]["direct"]) == ([], True)


@pytest.mark.parametrize(
    ("text", "agent"),
    [
        ("Hi.", clock_agent()),
        ("Which poems did she write about the time after the war in Lima?", clock_agent()),
        ("What time is it in Lima?", clock_agent(degraded="It is away.")),
        ("What does a specialist of yours look at?", BENCH),
    ],
    ids=["small-talk", "few-words", "degraded", "no-tool"],
)
async def test_direct_reply_stands_where_no_agent_is_certain(text: str, agent: AgentCard) -> None:
    execution = make_execution(NOON, agents=[agent])

    update = await step(supervisor(), initial_state(text), execution)

    assert (update["reply"], len(execution.model.requests)) == ("It is noon.", 1)


async def test_direct_reply_of_a_team_is_not_sent_back() -> None:
    execution = make_execution(NOON, agents=[clock_agent()])

    update = await step(
        replace(supervisor(), star=StarSpec(name="clocks")), initial_state("What time is it in Lima?"), execution
    )

    assert (update["reply"], len(execution.model.requests)) == ("It is noon.", 1)


async def test_resumed_decision_that_was_sent_back_asks_nothing_again() -> None:
    first = make_execution(NOON, TO_CLOCK, agents=[clock_agent()])
    begun = await step(supervisor(), initial_state("What time is it in Lima?"), first)
    second = make_execution(agents=[BENCH], run=make_run(fence=2), after=first)
    second = replace(second, context=replace(second.context, roster=first.context.roster))

    update = await step(supervisor(), initial_state("What time is it in Lima?"), second)

    assert (update["next_step"], second.model.requests) == (begun["next_step"], [])


async def test_direct_reply_that_was_adopted_by_an_earlier_version_stands() -> None:
    first = make_execution(NOON, agents=[BENCH])
    await step(supervisor(), initial_state("What time is it in Lima?"), first)
    second = make_execution(agents=[clock_agent()], run=make_run(fence=2), after=first)

    update = await step(supervisor(), initial_state("What time is it in Lima?"), second)

    assert (update["reply"], second.model.requests) == ("It is noon.", [])


async def test_direct_reply_keeps_the_parts_that_it_leaves_unserved() -> None:
    unserved = [{"part": "book a flight", "reason": "no agent books flights"}]
    execution = make_execution(decision_json(reply="Hello!", unserved=unserved))

    update = await step(supervisor(), initial_state("Hi. Book a flight."), execution)

    assert update["degraded"] == unserved


async def test_plan_dispatches_ready_tasks_only_and_warms_their_servers() -> None:
    sessions, execution = (
        Sessions(),
        make_execution(
            decision_json(task("t1", "bench"), task("t2", "generalist"), task("t3", "bench", after=["t1"])),
            agents=AGENTS,
        ),
    )

    update = await step(supervisor(sessions), initial_state("How is the disk?"), execution)

    assert update["next_step"] == ["t1", "t2"]
    assert {item["id"]: item["status"] for item in update["tasks"]} == {
        "t1": "running", "t2": "running", "t3": "pending",
    }  # fmt: skip
    assert sessions.warmed == ["bench"]
    assert execution.kinds == ["plan", "route"]


async def test_dispatch_is_limited_to_the_parallel_tasks() -> None:
    execution = make_execution(decision_json(*(task(f"t{n}", "generalist") for n in range(3))))

    update = await step(supervisor(parallel_tasks=2), initial_state("Do three things."), execution)

    assert update["next_step"] == ["t0", "t1"]


async def test_ready_task_of_a_sound_plan_is_dispatched_without_a_model() -> None:
    execution = make_execution(agents=AGENTS)
    state = planned(record("t1", "approved"), record("t2", "pending", "t1"), results=[outcome("t1")])

    update = await step(supervisor(), state, execution)

    assert (update["next_step"], execution.model.requests) == (["t2"], [])


async def test_finished_plan_goes_to_qa_without_a_model() -> None:
    execution = make_execution(agents=AGENTS)

    update = await step(supervisor(), planned(record("t1", "approved"), results=[outcome("t1")]), execution)

    assert (update, execution.model.requests) == ({"next_step": [], "degraded": []}, [])


async def test_failed_task_is_decided_again_with_its_reason_in_the_prompt() -> None:
    execution = make_execution(decision_json(task("t1", "generalist")), agents=AGENTS)

    update = await step(supervisor(), FAILED, execution)

    assert (update["next_step"], update["routing"]["decisions"]) == (["t1"], 2)
    assert "It broke." in execution.model.prompts[0]


async def test_uncertain_outcome_is_marked_in_the_prompt() -> None:
    execution = make_execution(decision_json(is_request_satisfied=True), agents=AGENTS)
    state = planned(record("t1", "failed"), results=[outcome("t1", "failed", unknown=True)])

    await step(supervisor(), state, execution)

    assert '"outcome_unknown": true' in execution.model.prompts[0]


async def test_same_failure_is_not_decided_twice() -> None:
    execution = make_execution(agents=AGENTS)
    state = planned(record("t1", "failed"), results=[outcome("t1", "failed")], failures_seen=1)

    update = await step(supervisor(), state, execution)

    assert [part["reason"] for part in update["degraded"]] == ["It broke."]
    assert execution.model.requests == []


async def test_satisfied_decision_finishes_and_names_failed_tasks() -> None:
    execution = make_execution(decision_json(is_request_satisfied=True), agents=AGENTS)
    state = planned(record("t1", "failed"), record("t2", "approved"), results=[outcome("t1", "failed"), outcome("t2")])

    update = await step(supervisor(), state, execution)

    assert update["next_step"] == []
    assert [(part["part"], part["reason"]) for part in update["degraded"]] == [("do t1", "It broke.")]


async def test_limit_of_decisions_ends_planning_with_a_warning() -> None:
    execution = make_execution(agents=AGENTS, run=make_run(supervisor_calls=1))

    update = await step(supervisor(), FAILED, execution)

    assert (update["next_step"], execution.warnings, execution.model.requests) == ([], ["limit_reached"], [])


async def test_limit_of_graph_steps_ends_dispatching_with_a_warning() -> None:
    execution = make_execution(agents=AGENTS)

    update = await step(supervisor(graph_steps=5), planned(record("t1"), rounds=2), execution)

    assert (update["next_step"], execution.warnings) == ([], ["limit_reached"])
    assert [part["reason"] for part in update["degraded"]] == [UNREACHED]


async def test_plan_longer_than_the_steps_is_sent_back_and_then_cut() -> None:
    chain = decision_json(*(task(f"t{n}", "generalist", after=[f"t{n - 1}"] if n else []) for n in range(4)))
    execution = make_execution(chain, chain)

    update = await step(supervisor(graph_steps=7), initial_state("Do four things."), execution)

    assert "t3: Its turn would come too late: only 3 more rounds" in execution.model.prompts[1]
    assert [item["id"] for item in update["tasks"]] == ["t0", "t1", "t2"]
    assert "too late" in update["degraded"][0]["reason"]


async def test_plan_with_too_many_tasks_is_sent_back_and_then_cut() -> None:
    many = decision_json(*(task(f"t{n}", "generalist", after=["t1"] if n > 2 else []) for n in range(1, 6)))
    execution = make_execution(many, many)

    update = await step(supervisor(tasks_per_plan=3), initial_state("Do five things."), execution)

    assert "A plan may have at most 3 tasks (limits.tasks_per_plan). Plan fewer tasks." in execution.model.prompts[1]
    assert [item["id"] for item in update["tasks"]] == ["t1", "t2", "t3"]
    assert [part["task_id"] for part in update["degraded"]] == ["t4", "t5"]
    assert {part["reason"] for part in update["degraded"]} == {
        "A plan may have at most 3 tasks (limits.tasks_per_plan)."
    }
    assert execution.warnings == ["llm_invalid_response", "limit_reached"]


async def test_renewed_task_takes_no_more_room_in_the_plan() -> None:
    execution = make_execution(decision_json(task("t1", "generalist")), agents=AGENTS)

    update = await step(supervisor(tasks_per_plan=1), FAILED, execution)

    assert (update["next_step"], execution.warnings) == (["t1"], [])


async def test_circuit_breaker_stops_at_the_second_repeat_without_progress() -> None:
    again = decision_json(task("t1", "bench"), plan=["look"])
    state, execution = initial_state("How is the disk?"), make_execution(again, again, again, agents=AGENTS)
    dispatched: list[list[str]] = []

    for number in range(1, 4):
        update = await step(supervisor(), state, execution)
        dispatched.append(update["next_step"])
        failed = [outcome("t1", "failed")] * number
        state = after(state, update | {"tasks": [record("t1", "failed")], "results": failed})

    assert dispatched == [["t1"], ["t1"], []]
    assert execution.warnings == ["circuit_breaker"]


async def test_nothing_is_decided_after_the_deadline() -> None:
    execution = make_execution(agents=AGENTS, seconds=0.0)

    update = await step(supervisor(), planned(record("t1")), execution)

    assert [part["reason"] for part in update["degraded"]] == [OUT_OF_TIME]


async def test_nothing_is_decided_without_budget() -> None:
    execution = make_execution(agents=AGENTS)
    execution.context.budget.meter.exhausted = True

    update = await step(supervisor(), planned(record("t1")), execution)

    assert [part["reason"] for part in update["degraded"]] == [OUT_OF_TOKENS]


@pytest.mark.parametrize("wrong", [GARBAGE, "", "certainly!", decision_json(task("t1", "a"), task("t1", "b"))])
async def test_invalid_decision_is_repaired_once(wrong: str) -> None:
    execution = make_execution(wrong, decision_json(reply="Hello."))

    update = await step(supervisor(), initial_state("Hi."), execution)

    repair = execution.model.requests[1].messages
    assert [message.role for message in repair] == ["system", "user", "assistant", "user"]
    assert "<validation_error>" in repair[-1].content
    assert (update["reply"], execution.warnings) == ("Hello.", ["llm_invalid_response"])


async def test_unreadable_decision_is_sent_back_with_its_fault() -> None:
    cut = LLMInvalidResponse("scripted:small", "the answer was cut off at the token limit")
    execution = make_execution(cut, decision_json(reply="Hello."))

    update = await step(supervisor(), initial_state("Hi."), execution)

    assert "<validation_error>the answer was cut off at the token limit" in execution.model.prompts[1]
    assert update["reply"] == "Hello."


async def test_unreachable_model_is_a_failure_with_its_reason() -> None:
    execution = make_execution(LLMConnectionError("scripted:small", "not today"))

    update = await step(supervisor(), initial_state("Hi."), execution)

    assert (execution.warnings, update["next_step"]) == (["llm_connection_error"], [])
    assert update["failure_code"] == "llm_connection_error"
    assert "not today" in update["failure"]


async def test_two_invalid_decisions_are_given_up_as_a_failure() -> None:
    execution = make_execution(GARBAGE, GARBAGE)

    update = await step(supervisor(), initial_state("Hi."), execution)

    assert update["failure"].startswith("The request couldn't be planned. Model scripted:small: two answers in a row")
    assert execution.warnings == ["llm_invalid_response"] * 2


async def test_failed_decision_with_approved_results_is_no_failure() -> None:
    execution = make_execution(LLMConnectionError("scripted:small", "it is away"), agents=AGENTS)
    state = planned(record("t1", "approved"), record("t2", "failed"), results=[outcome("t1"), outcome("t2", "failed")])

    update = await step(supervisor(), state, execution)

    assert (update["failure"], execution.warnings) == ("", ["llm_connection_error"])


async def test_empty_decision_is_sent_back_once() -> None:
    execution = make_execution(decision_json(), decision_json(task("t1", "bench")), agents=AGENTS)

    update = await step(supervisor(), initial_state("How is the disk?"), execution)

    assert "The decision is empty. Give the request to agents" in execution.model.prompts[1]
    assert update["next_step"] == ["t1"]


async def test_second_empty_decision_is_a_failure_that_says_so() -> None:
    execution = make_execution(decision_json(), decision_json(is_request_satisfied=True), agents=AGENTS)

    update = await step(supervisor(), initial_state("How is the disk?"), execution)

    assert update["failure"].startswith("The request couldn't be planned. The model was asked twice, and named no task")
    assert (update["failure_code"], update["next_step"]) == ("empty_plan", [])


async def test_decision_that_leaves_a_failed_task_out_is_not_empty() -> None:
    execution = make_execution(decision_json(), agents=AGENTS)

    update = await step(supervisor(), FAILED, execution)

    assert [part["reason"] for part in update["degraded"]] == ["It broke."]
    assert "failure" not in update


async def test_unknown_names_are_sent_back_and_the_rest_counts_if_the_repair_fails() -> None:
    wrong = decision_json(task("t1", "nobody", "book a flight"), task("t2", "bench"))
    execution = make_execution(wrong, "", agents=AGENTS)

    update = await step(supervisor(), initial_state("Book a flight, and how is the disk?"), execution)

    assert (
        "There is no agent 'nobody'. The agents are: architect, away, bench, coder, generalist."
        in execution.model.prompts[1]
    )
    [left_out] = update["degraded"]
    assert (update["next_step"], left_out["part"], left_out["code"]) == (["t2"], "book a flight", "unknown_agent")


async def test_part_that_is_served_later_is_not_degraded_any_more() -> None:
    execution = make_execution(decision_json(task("t1", "bench")), agents=AGENTS)
    known = [{"part": "do t1", "reason": "There is no agent 'nobody'.", "task_id": "t1"}]

    update = await step(supervisor(), after(FAILED, {"degraded": known}), execution)

    assert (update["next_step"], update["degraded"]) == (["t1"], [])


async def test_replayed_decision_is_asked_and_reported_once() -> None:
    first = make_execution(decision_json(task("t1", "bench")), agents=AGENTS)
    before = await step(supervisor(), initial_state("How is the disk?"), first)
    second = make_execution(agents=(replace(BENCH, degraded="The server is away."),), after=first)

    update = await step(supervisor(), initial_state("How is the disk?"), second)

    assert update["plan"] == before["plan"]
    assert (second.model.requests, second.kinds) == ([], [])


async def test_question_suspends_and_is_asked_once() -> None:
    execution = make_execution(QUESTION)

    waits = await suspended(supervisor(), initial_state("Is the disk fine?"), execution)

    [asked] = execution.events("clarification")
    assert (asked["message"], waits) == ("Which disk?", [asked["id"]])
    again = make_execution(after=execution, interrupts=[stored_interrupt(asked, "clarification", KEY, state="open")])
    assert await suspended(supervisor(), initial_state("Is the disk fine?"), again) == waits
    assert (again.kinds, again.model.requests) == ([], [])


async def test_answer_leads_to_a_decision_that_may_not_ask_again() -> None:
    first = make_execution(QUESTION)
    await suspended(supervisor(), initial_state("Is the disk fine?"), first)
    [asked] = first.events("clarification")
    answered = stored_interrupt(asked, "clarification", KEY, payload={"answer": "the second"})
    second = make_execution(decision_json(reply="It is fine."), after=first, interrupts=[answered])

    update = await step(supervisor(), initial_state("Is the disk fine?"), second)

    [request] = second.model.requests
    assert (update["reply"], update["messages"][1]["content"]) == ("It is fine.", "the second")
    assert "the second" in request.messages[1].content
    assert "question" not in str(request.response)


@pytest.mark.parametrize("state", ["expired", "cancelled"])
async def test_unanswered_question_becomes_an_assumption(state: str) -> None:
    first = make_execution(QUESTION)
    await suspended(supervisor(), initial_state("Is the disk fine?"), first)
    [asked] = first.events("clarification")
    unanswered = stored_interrupt(asked, "clarification", KEY, state=state)
    second = make_execution(decision_json(reply="It is fine."), after=first, interrupts=[unanswered])

    update = await step(supervisor(), initial_state("Is the disk fine?"), second)

    assert "Which disk?" in update["assumptions"][0]


async def test_caller_that_allows_no_questions_is_not_asked() -> None:
    execution = make_execution(decision_json(reply="Fine."), run=make_run(max_clarifications=0))

    await step(supervisor(), initial_state("Is the disk fine?"), execution)

    [request] = execution.model.requests
    assert "question" not in str(request.response)
    assert "You can't ask the user" in str(request.messages)


KEY = "clarification/supervisor/1"


async def test_limit_warning_is_not_repeated_by_the_next_execution() -> None:
    state, first = planned(record("t1"), rounds=2), make_execution(agents=AGENTS)
    await step(supervisor(graph_steps=5), state, first)
    second = make_execution(agents=AGENTS, after=first)

    await step(supervisor(graph_steps=5), state, second)

    assert (first.warnings, second.warnings) == (["limit_reached"], [])


WEATHER = ("snow", "rain", "wind", "storms", "fog", "hail", "frost", "clouds")
MANY = [AgentCard(f"mcp_agent_{topic}", "specialist", f"Forecasts of {topic}", topic) for topic in WEATHER]


def shown(prompt_text: str) -> list[str]:
    """The specialists that a prompt of the supervisor shows, in order."""
    return re.findall(r'<agent name="mcp_agent_(\w+)"', prompt_text)


async def test_decision_sees_the_agents_that_fit_and_how_many_there_are() -> None:
    execution = make_execution(decision_json(reply="Hello."), agents=MANY)

    await step(supervisor(shortlist=2), initial_state("Forecasts of rain and wind, please."), execution)

    seen = execution.model.prompts[0]
    assert set(shown(seen)) == {"rain", "wind"}
    assert "5 of 11 agents" in seen
    assert 'name="generalist"' in seen
    assert "look_for" in execution.model.requests[0].messages[0].content


@pytest.mark.parametrize(("teams", "specialists"), [(9, 4), (1, 5)])
async def test_last_places_are_for_the_teams_that_fit_best(teams: int, specialists: int) -> None:
    crews = [
        AgentCard(f"crew_{number}", "team", "Forecasts of rain and wind" + " etc." * number) for number in range(teams)
    ]
    looking, again = decision_json(look_for=["hail"]), decision_json(task("t1", "mcp_agent_rain"))
    execution = make_execution(looking, again, agents=[*crews, *MANY])

    await step(supervisor(shortlist=6), initial_state("Forecasts of rain and wind, please."), execution)

    for seen, best in zip(execution.model.prompts, ("rain", "hail"), strict=True):
        names = re.findall(r'<agent name="(?:mcp_agent_)?(\w+)" kind="(?:specialist|team)"', seen)
        assert names[0] == best
        assert len(names) == 6
        assert names[specialists:] == [crew.name for crew in crews[: 6 - specialists]]


async def test_embedder_that_is_away_leaves_one_warning_and_agents_found_by_words() -> None:
    looking = decision_json(look_for=["storms"])
    execution = make_execution(looking, decision_json(task("t1", "mcp_agent_storms")), agents=MANY)
    node = supervisor(embedder=AwayEmbedder(), shortlist=1)

    update = await step(node, initial_state("Forecasts of rain, please."), execution)

    assert execution.warnings == ["embeddings_unavailable"]
    assert [shown(text) for text in execution.model.prompts] == [["rain"], ["storms"]]
    assert [one["agent"] for one in update["tasks"]] == ["mcp_agent_storms"]


async def test_named_agents_and_those_of_the_last_turn_are_seen_too() -> None:
    execution = make_execution(decision_json(reply="Hello."), agents=MANY, recent_agents=["mcp_agent_fog", "gone"])

    await step(
        supervisor(shortlist=1), initial_state("Ask mcp_agent_hail and frost about rain and more rain."), execution
    )

    assert set(shown(execution.model.prompts[0])) == {"rain", "hail", "frost", "fog"}


async def test_small_roster_is_seen_whole_and_nothing_is_looked_for() -> None:
    execution = make_execution(decision_json(reply="Hello."), agents=MANY)

    await step(supervisor(), initial_state("Forecasts of rain, please."), execution)

    assert shown(execution.model.prompts[0]) == list(WEATHER)
    assert " agents\n" not in execution.model.prompts[0]
    assert "look_for" not in json.dumps(
        execution.model.requests[0].response and execution.model.requests[0].response.schema
    )


async def test_what_is_looked_for_is_found_and_the_supervisor_asked_once_more() -> None:
    looking = decision_json(look_for=["storms at sea"], plan=["watch the frost"])
    again = decision_json(task("t1", "mcp_agent_storms"), look_for=["more of it"])
    execution = make_execution(looking, again, agents=MANY)

    update = await step(supervisor(shortlist=2), initial_state("Is it safe to sail?"), execution)

    assert update["next_step"] == ["t1"]
    assert {"storms", "frost"} <= set(shown(execution.model.prompts[1]))
    assert len(execution.model.requests) == 2


PLANNED = decision_json(task("t1", "mcp_agent_rain"), plan=["forecast the rain", "forecast of storms"])


@pytest.mark.parametrize(
    ("request_text", "second", "agents", "calls"),
    [
        pytest.param("Rain and wind?", [decision_json(task("t1", "mcp_agent_storms"))], ["storms"], 2, id="not shown"),
        pytest.param("Rain and storms?", [], ["rain"], 1, id="all shown"),
        pytest.param("Rain and wind?", [LLMConnectionError("m", "it is away.")], ["rain"], 2, id="no answer"),
    ],
)
async def test_supervisor_is_asked_once_more_where_the_best_agent_for_a_step_was_not_shown(
    request_text: str, second: list[Any], agents: list[str], calls: int
) -> None:
    execution = make_execution(PLANNED, *second, agents=MANY)

    update = await step(supervisor(shortlist=2), initial_state(request_text), execution)

    assert [one["agent"].removeprefix("mcp_agent_") for one in update["tasks"]] == agents
    assert len(execution.model.requests) == calls


async def test_decision_of_an_earlier_version_is_not_asked_again_for_its_steps() -> None:
    state = initial_state("Forecasts of rain and wind?")
    first = make_execution(decision_json(task("t1", "mcp_agent_rain"), plan=["forecast the rain"]), agents=MANY)
    await step(supervisor(shortlist=1), state, first)
    resumed = make_execution(
        agents=[*MANY, replace(MANY[0], name="best", server="rain", description="Forecast the rain")], after=first
    )

    update = await step(supervisor(shortlist=1), state, resumed)

    assert (update["next_step"], resumed.model.requests) == (["t1"], [])


async def test_question_that_waits_is_not_decided_anew_when_a_better_agent_for_its_steps_has_come() -> None:
    state = initial_state("Forecasts of rain and wind?")
    first = make_execution(decision_json(question="Where?", plan=["forecast the rain"]), agents=MANY)
    waits = await suspended(supervisor(shortlist=1), state, first)
    [asked] = first.events("clarification")
    better = replace(MANY[0], name="best", server="rain", description="Forecast the rain")
    resumed = make_execution(
        agents=[*MANY, better],
        after=first,
        interrupts=[stored_interrupt(asked, "clarification", KEY, state="open")],
    )

    assert await suspended(supervisor(shortlist=1), state, resumed) == waits
    assert resumed.model.requests == []


async def test_resumed_decision_sees_the_same_agents_without_a_search() -> None:
    state = initial_state("Is it safe to sail in the rain?")
    first = make_execution(
        decision_json(look_for=["storms"]), decision_json(task("t1", "mcp_agent_storms")), agents=MANY
    )
    await step(supervisor(shortlist=2), state, first)
    resumed = make_execution(agents=MANY[::-1], after=first)

    update = await step(supervisor(shortlist=1), state, resumed)

    assert (update["next_step"], resumed.model.requests, resumed.warnings) == (["t1"], [], [])


async def test_unknown_agent_of_many_names_near_matches_only() -> None:
    many = [replace(MANY[0], name=f"mcp_agent_snow_{number}", server=f"snow_{number}") for number in range(40)]
    wrong = decision_json(task("t1", "mcp_agent_snw_12"))
    execution = make_execution(wrong, wrong, agents=many)

    await step(supervisor(), initial_state("Snow?"), execution)

    told = execution.model.prompts[1]
    assert "Did you mean mcp_agent_snow_12" in told
    assert told.count("mcp_agent_snow_") <= 3


async def test_request_for_one_agent_is_its_task_without_a_model() -> None:
    execution = make_execution(run=sent_to("bench"), agents=AGENTS)

    update = await step(supervisor(), initial_state("How is the disk?"), execution)

    assert [(task["agent"], task["task"]) for task in update["tasks"]] == [("bench", "How is the disk?")]
    assert (update["next_step"], execution.model.requests) == (["t1"], [])


async def test_failed_task_of_a_request_for_one_agent_is_not_decided_again() -> None:
    execution = make_execution(run=sent_to("bench"), agents=AGENTS)

    update = await step(supervisor(), FAILED, execution)

    assert (update["next_step"], execution.model.requests) == ([], [])


async def test_request_for_an_unknown_agent_names_near_ones() -> None:
    execution = make_execution(run=sent_to("benhc"), agents=AGENTS)

    update = await step(supervisor(), initial_state("How is the disk?"), execution)

    assert update["next_step"] == []
    assert "Did you mean bench?" in update["degraded"][0]["reason"]


def sent_to(agent: str) -> Run:
    """A run of which one agent gets the whole request."""
    return replace(make_run("How is the disk?"), config=RunConfig(agent=agent))
