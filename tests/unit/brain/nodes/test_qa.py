"""The QA node: answers that need no model, streamed answers, and the text that replaces a failed one."""

from dataclasses import replace
from typing import Any

import pytest
from langgraph.runtime import Runtime

from brain.nodes.qa import Qa
from brain.registry.cards import AgentCard, Roster
from brain.state import DegradedPart, GraphState, GraphTask, TaskOutcome, Update, after, initial_state
from starling.core.errors import LLMTimeout
from starling.core.llm import ModelReply
from starling.core.tool_calls import Effect
from starling.core.tools import ToolDefinition
from tests.support.in_memory_run import Execution, ScriptedAnswer, make_execution, make_run


def answered(*outputs: str, tools: bool = True, **fields: Any) -> GraphState:
    """The state with an approved task for each output."""
    ids = [f"t{number}" for number in range(1, len(outputs) + 1)]
    tasks = [GraphTask(id=key, agent="bench", task=f"do {key}", depends_on=[], status="approved") for key in ids]
    results = [outcome(key, output, tools=tools) for key, output in zip(ids, outputs, strict=True)]
    return after(initial_state("How is the disk?"), {"tasks": tasks, "results": results, **fields})


def outcome(task_id: str, output: str, *, tools: bool) -> TaskOutcome:
    uses: Any = [{"tool": "bench.look", "status": "succeeded"}] * 2 if tools else []
    return TaskOutcome(
        task_id=task_id, agent="bench", status="approved", output=output, reason="", attempts=1, tools=uses
    )


def card(server: str, tool: str, **fields: Any) -> AgentCard:
    listed = ToolDefinition(server, tool, "Does it.", {}, None, Effect.READ, "0")
    return AgentCard(server, "specialist", "", server, (listed,), **fields)


async def step(state: GraphState, execution: Execution) -> Update:
    return await Qa()(state, Runtime(context=execution.context))


SERVER = "a server with a tool for it (`starling server add`); `starling server show NAME` lists what a server can do"
FLIGHT = DegradedPart(part="book a flight", reason="no agent books flights")


BENCH = {"agent": "bench", "tools": ["bench.look"]}


def replied(text: str) -> GraphState:
    """The state after a direct reply of the supervisor."""
    begun = initial_state("Hi.")
    return after(begun, {"reply": text, "routing": begun["routing"] | {"direct": True}})


def failed(task_id: str, reason: str, code: str, **fields: Any) -> TaskOutcome:
    values: Any = outcome(task_id, "", tools=False) | {"status": "failed", "reason": reason, "code": code} | fields
    return values


def tried(*outcomes: TaskOutcome, **fields: Any) -> GraphState:
    """The state whose tasks all failed."""
    ids = list(dict.fromkeys(item["task_id"] for item in outcomes))
    tasks = [GraphTask(id=key, agent="bench", task=f"do {key}", depends_on=[], status="failed") for key in ids]
    return after(initial_state("How is the disk?"), {"tasks": tasks, "results": list(outcomes), **fields})


async def test_direct_reply_is_streamed_without_a_model() -> None:
    execution = make_execution()

    update = await step(replied("Hello!"), execution)

    assert update == {"reply": "Hello!", "citations": []}
    assert (execution.text, execution.model.requests) == ("Hello!", [])


async def test_direct_reply_names_the_parts_that_it_leaves_out() -> None:
    execution = make_execution()

    update = await step(after(replied("Hello!"), {"degraded": [FLIGHT]}), execution)

    assert update["reply"] == "Hello!\n\nNot answered: book a flight (no agent books flights)"


async def test_without_an_approved_result_the_reply_is_made_of_what_was_tried() -> None:
    uses: Any = [{"tool": "get_weather", "status": "failed"}] * 3
    execution = make_execution()
    first = failed("t1", "get_weather failed: There is no tool 'get_weather'.", "not_allowed", tools=uses, attempts=2)

    update = await step(tried(first, failed("t2", "It took too long.", "timeout"), degraded=[FLIGHT]), execution)

    assert update["reply"] == execution.text
    assert update["reply"].splitlines() == [
        "There is no answer: no task gave a result.",
        "",
        "Not answered: book a flight (no agent books flights)",
        f"  What would help: {SERVER}.",
        "",
        "Not answered: do t1 (get_weather failed: There is no tool 'get_weather'.)",
        "  Tried: bench, 2 attempts, 3 tool calls (get_weather).",
        f"  What would help: {SERVER}, or a key that may call the tool.",
        "",
        "Not answered: do t2 (It took too long.)",
        "  Tried: bench, 1 attempt, no tool call.",
        "  What would help: more time for the tool (`timeout` under `x-starling`), or a smaller request.",
    ]
    assert execution.model.requests == []


async def test_reply_after_failed_tasks_is_no_answer() -> None:
    direct = replied("It is noon in Lima [1].")
    broken = failed("t1", "It broke.", "tool_error")

    update = await step(tried(broken, reply=direct["reply"], routing=direct["routing"]), make_execution())

    assert "noon" not in update["reply"]
    assert "Not answered: do t1 (It broke.)" in update["reply"]


async def test_what_a_model_says_about_a_failed_task_is_not_its_reason() -> None:
    excuse = DegradedPart(part="Do t1", reason="I can't access live data.")

    update = await step(tried(failed("t1", "It broke.", "tool_error"), degraded=[excuse]), make_execution())

    assert "Not answered: do t1 (It broke.)" in update["reply"]
    assert "live data" not in update["reply"]


@pytest.mark.parametrize("code", ["llm_timeout", "unheard_of"])
async def test_every_reason_has_a_remedy(code: str) -> None:
    update = await step(tried(failed("t1", "It broke.", code)), make_execution())

    assert "What would help: " in update["reply"]


async def test_failed_plan_names_what_would_help() -> None:
    state = after(initial_state("Hi."), {"failure": "It couldn't be planned.", "failure_code": "llm_timeout"})

    update = await step(state, make_execution())

    assert update["reply"].startswith("It couldn't be planned.\nWhat would help: a look at the model")


async def test_missing_parts_are_added_below_an_answer_that_does_not_name_them() -> None:
    execution = make_execution("The disk is fine [1].")
    named = DegradedPart(part="The disk", reason="told already")

    update = await step(answered("the disk is fine", degraded=[FLIGHT, named]), execution)

    expected = "The disk is fine [1].\n\nNot answered: book a flight (no agent books flights)"
    assert update["reply"] == execution.text == expected


async def test_citations_without_a_source_are_removed_and_counted() -> None:
    execution = make_execution("The disk is fine [1], and warm [3] [7].")

    update = await step(answered("the disk is fine"), execution)

    assert update["reply"] == execution.text == "The disk is fine [1], and warm."
    [warning] = execution.events("warning")
    assert warning["code"] == "citation_without_source"
    assert warning["message"] == "Citations that name no source were removed from the answer (2): [3], [7]."


async def test_direct_reply_has_no_sources_to_cite() -> None:
    execution = make_execution()

    update = await step(replied("It is noon in Lima [1]."), execution)

    assert update["reply"] == execution.text == "It is noon in Lima."
    assert execution.warnings == ["citation_without_source"]


@pytest.mark.parametrize(("agent", "reply"), [("generalist", "See for yourself."), ("coder", "See for yourself [4].")])
async def test_brackets_in_written_code_are_no_citations(agent: str, reply: str) -> None:
    state = answered("See for yourself [4].", tools=False)
    state["results"][0]["agent"] = agent

    update = await step(state, make_execution())

    assert update["reply"] == reply


async def test_repeated_answer_is_checked_again_without_a_second_warning() -> None:
    first = make_execution("Fine [1][2].")
    await step(answered("the disk is fine"), first)
    second = make_execution(run=make_run(fence=2), after=first)

    update = await step(answered("the disk is fine"), second)

    assert update["reply"] == second.text == "Fine [1]."
    assert (second.warnings, second.model.requests) == ([], [])


async def test_only_text_of_the_plan_is_the_answer_without_a_model() -> None:
    execution = make_execution()

    update = await step(answered("print(1)", tools=False), execution)

    assert (update["reply"], execution.model.requests, execution.kinds) == ("print(1)", [], [])


async def test_results_are_consolidated_and_streamed() -> None:
    execution = make_execution("The disk is fine [1], so is the door [2]. ")

    update = await step(answered("the disk is fine", "the door is fine"), execution)

    assert update["reply"] == execution.text.strip() == "The disk is fine [1], so is the door [2]."
    whole: Any = {"start": 0, "end": 16}
    assert update["citations"] == [
        {"id": 1, "task_id": "t1", **BENCH, "excerpts": [whole | {"text": "the disk is fine"}]},
        {"id": 2, "task_id": "t2", **BENCH, "excerpts": [whole | {"text": "the door is fine"}]},
    ]


async def test_prompt_names_results_assumptions_and_degraded_parts() -> None:
    execution = make_execution("Fine.")
    state = answered("the disk is fine", degraded=[FLIGHT], assumptions=["the first disk"])

    await step(state, execution)

    [asked] = execution.model.prompts
    assert 'citation="1">the disk is fine</result>' in asked
    assert '<part reason="no agent books flights">book a flight</part>' in asked
    assert "<assumption>the first disk</assumption>" in asked


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (LLMTimeout("scripted:small", "no answer"), "llm_timeout"),
        ("  ", "llm_invalid_response"),
        ("[1]", "llm_invalid_response"),
        ("The disk is fine [1]. " * 9, "llm_invalid_response"),
        (ModelReply("The disk is", finish_reason="length"), "llm_invalid_response"),
    ],
    ids=["error", "empty", "only-cites", "repeats", "cut"],
)
async def test_results_as_they_are_replace_an_answer_that_fails_twice(answer: ScriptedAnswer, code: str) -> None:
    execution = make_execution(answer, answer)

    update = await step(answered("the disk is fine", degraded=[FLIGHT]), execution)

    expected = "the disk is fine [1]\n\nNot answered: book a flight (no agent books flights)"
    assert update["reply"] == execution.text == expected
    assert execution.warnings == [code]


async def test_answer_with_a_fault_is_asked_for_once_more() -> None:
    execution = make_execution(ModelReply("The disk is", finish_reason="length"), "The disk is fine [1].")

    update = await step(answered("the disk is fine"), execution)

    assert update["reply"] == execution.text.strip() == "The disk is fine [1]."
    assert execution.warnings == []
    first, second = execution.model.requests
    assert second.messages[: len(first.messages)] == first.messages
    assert "This answer was cut off at the token limit." in second.messages[-1].content


async def test_replayed_answer_with_a_fault_is_asked_for_again_at_a_position_of_its_own() -> None:
    first = make_execution("  ", "The disk is fine [1].")
    await step(answered("the disk is fine"), first)
    second = make_execution(run=make_run(fence=2), after=first)

    update = await step(answered("the disk is fine"), second)

    assert [entry.position for entry in first.sink.entries if entry.kind == "answer"] == [0, 1]
    assert (update["reply"], second.model.requests) == ("The disk is fine [1].", [])


async def test_repetition_that_the_results_have_is_an_answer() -> None:
    lines = "all is well here\n" * 20
    execution = make_execution(f"{lines}[1]")

    update = await step(answered(lines), execution)

    assert (update["reply"], execution.warnings) == (f"{lines}[1]", [])


async def test_answer_from_one_result_cites_it() -> None:
    execution = make_execution("The disk is fine.")

    update = await step(answered("the disk is fine", degraded=[FLIGHT]), execution)

    expected = "The disk is fine. [1]\n\nNot answered: book a flight (no agent books flights)"
    assert update["reply"] == execution.text == expected


async def test_answer_from_two_results_gets_no_citation_by_code() -> None:
    update = await step(answered("the disk is fine", "the door too"), make_execution("All is fine."))

    assert update["reply"] == "All is fine."


async def test_json_around_an_answer_is_removed() -> None:
    execution = make_execution('{"answer": "The disk is fine [1]."}')

    update = await step(answered("the disk is fine"), execution)

    assert update["reply"] == execution.text == "The disk is fine [1]."


@pytest.mark.parametrize(
    ("part", "remedy"),
    [
        ("look at the moon", "other words for it, or a stronger model: an agent may have a tool for it."),
        ("open the door", "an admin who switches it on again (`starling switch list`): “no agent can”."),
        ("fetch the letter", "a look at the server: `starling server test NAME` starts it and lists its tools."),
        ("sell the car", "a key and a mode that allow the agent."),
        ("book a flight", f"{SERVER}."),
    ],
)
async def test_remedy_names_another_server_only_where_none_has_a_tool(part: str, remedy: str) -> None:
    cards = [card("bench", "look"), card("door", "open"), card("post", "fetch", degraded="It is away.")]
    execution = make_execution(agents=[replace(cards[0]), replace(cards[1], degraded="Off."), cards[2]])
    roster = Roster({one.name: one for one in [*cards, card("shop", "sell")]})
    search = replace(execution.context.search, roster=roster)
    context = replace(execution.context, search=search, switched_off=frozenset({"door"}))
    state = after(initial_state("Hi."), {"degraded": [DegradedPart(part=part, reason="no agent can")]})

    update = await Qa()(state, Runtime(context=context))

    assert update["reply"].splitlines()[-1] == f"  What would help: {remedy}"


async def test_remedy_of_a_rejected_task_names_what_the_reviewer_said() -> None:
    update = await step(tried(failed("t1", "The date is missing.", "rejected")), make_execution())

    assert update["reply"].endswith("or a stronger model: “The date is missing.”.")


async def test_answer_after_the_deadline_is_the_results_as_they_are() -> None:
    execution = make_execution(seconds=0.0)

    update = await step(answered("the disk is fine"), execution)

    assert (update["reply"], execution.warnings) == ("the disk is fine [1]", ["deadline_exceeded"])


LONG = "\n".join(f"disk {number} is fine, as it was on the day before" for number in range(1_000))
GAP = "[left out: 12 items, 4,096 characters from 2,048 on]"


async def test_answer_names_the_results_that_were_read_in_part() -> None:
    execution = make_execution("Fine [1][2].")

    update = await step(answered("the short one", LONG), execution)

    assert update["reply"] == "Fine [1][2].\n\nRead in part: do t2 (bench)"
    assert execution.text == update["reply"]


@pytest.mark.parametrize("output", [f"disk 0\n{GAP}\ndisk 9", "Fine.\n\nRead in part: look (member)"])
async def test_result_that_lacked_parts_before_is_read_in_part(output: str) -> None:
    update = await step(answered("the short one", output), make_execution("Fine [1][2]."))

    assert update["reply"].endswith("\n\nRead in part: do t2 (bench)")
