"""Reviews: whose verdict counts, with which prompt and model, and that it is reported once."""

from dataclasses import replace

import pytest

from brain.agents.turn.agent_runtime import AttemptOutput, FinishedCall, TaskExecution
from brain.agents.turn.reflection import Reviewer
from brain.prompts import prompt
from brain.registry.cards import AgentCard
from starling.core.agents import LLMAgentConfig
from starling.core.tool_calls import Effect, Observation, ReviewPolicy
from starling.core.tools import ToolCall, ToolOutcome
from starling.core.tracing import NOOP_TRACER
from tests.support.in_memory_run import Execution, make_execution
from tests.support.model_documents import verdict_json
from tests.support.runtime_harness import dispatch
from tests.support.scripted_gateway import tool

CARD = AgentCard("bench", "specialist", "Looks.", server="bench")
REVIEWER = Reviewer(NOOP_TRACER)
APPROVED = verdict_json("APPROVED", "Fine.")


def task_of(begun: Execution, card: AgentCard = CARD) -> TaskExecution:
    return TaskExecution(begun.context, card, dispatch("look", card.name), "t1")


async def test_prompt_shows_calls_with_arguments_and_results() -> None:
    begun = make_execution(APPROVED)
    use = FinishedCall("bench.look", {"thing": "disk"}, ToolOutcome(Observation.COMPLETED, "the disk is <fine>"))

    result = await REVIEWER.review(task_of(begun), AttemptOutput("the disk is <fine>", (use,)), attempt=1)

    [asked] = begun.model.prompts
    assert '<call name="bench.look" status="succeeded"><arguments>{"thing"' in asked
    assert "<result>the disk is &lt;fine&gt;</result>" in asked
    assert (result.approved, result.output) == (True, "the disk is <fine>")


async def test_order_of_arguments_does_not_change_the_prompt() -> None:
    """A resumed run reads them from the database, which has an order of its own."""
    asked: list[str] = []
    for arguments in ({"offset": 1, "length": 2}, {"length": 2, "offset": 1}):
        begun = make_execution(APPROVED)
        use = FinishedCall("bench.look", arguments, ToolOutcome(Observation.COMPLETED, "fine"))
        await REVIEWER.review(task_of(begun), AttemptOutput("fine", (use,)), attempt=1)
        asked += begun.model.prompts

    assert asked[0] == asked[1]


async def test_prompt_says_that_a_cut_result_is_longer() -> None:
    begun = make_execution(APPROVED)
    outcome = ToolOutcome(Observation.COMPLETED, "the beginning", truncated=True, artifact="a1", characters=50_000)

    await REVIEWER.review(
        task_of(begun), AttemptOutput("the beginning", (FinishedCall("bench.look", {}, outcome),)), attempt=1
    )

    assert 'shown="parts of 50,000 characters"' in begun.model.prompts[0]


async def test_reviewing_agent_gives_its_instruction_and_its_model() -> None:
    config = LLMAgentConfig(id="strict", behavior_template="Accept nothing vague.", llm_model="scripted:large")
    card = AgentCard("writer", "custom", "Writes.", reviewer=config)
    begun = make_execution(APPROVED)

    await REVIEWER.review(task_of(begun, card), AttemptOutput("text"), attempt=1)

    [request] = begun.model.requests
    assert request.model == "scripted:large"
    assert "Accept nothing vague." in request.messages[0].content
    assert request.prompt == prompt("reflection").used


async def test_verdicts_of_two_attempts_have_places_of_their_own_in_the_journal() -> None:
    begun = make_execution("garbage", verdict_json("REJECTED", "No."), APPROVED)
    execution = task_of(begun)

    first = await REVIEWER.review(execution, AttemptOutput("one"), attempt=1)
    second = await REVIEWER.review(execution, AttemptOutput("two"), attempt=2)

    assert (first.approved, second.approved) == (False, True)
    assert [entry.position for entry in begun.sink.entries if entry.kind == "answer"] == [0, 1, 4]


async def test_replayed_verdict_is_not_reported_again() -> None:
    first = make_execution(APPROVED)
    await REVIEWER.review(task_of(first), AttemptOutput("text"), attempt=1)
    second = make_execution(after=first)

    result = await REVIEWER.review(task_of(second), AttemptOutput("text"), attempt=1)

    assert (result.approved, result.reasons) == (True, ("Fine.",))
    assert (second.kinds, second.model.requests) == ([], [])


@pytest.mark.parametrize(
    ("agent", "tools", "uses", "reviewed"),
    [
        ("always", {"look": None}, ["look"], True),
        ("always", {"look": "never"}, ["look"], False),
        ("always", {"look": "never", "put": None}, ["look", "put"], True),
        ("never", {"look": "always"}, ["look"], True),
        ("never", {"look": "always", "put": None}, ["put"], False),
        ("never", {"look": "risky"}, ["look"], False),
        ("always", {"look": "never"}, [], True),
    ],
)
async def test_policy_of_a_tool_wins_over_that_of_the_agent_for_its_results(
    agent: ReviewPolicy, tools: dict[str, ReviewPolicy | None], uses: list[str], reviewed: bool
) -> None:
    known = tuple(replace(tool(name), reflect=policy) for name, policy in tools.items())
    begun = make_execution(APPROVED)
    made = tuple(FinishedCall(f"bench.{name}", {}, ToolOutcome(Observation.COMPLETED, "fine")) for name in uses)

    result = await REVIEWER.review(
        task_of(begun, replace(CARD, tools=known, reflect=agent)), AttemptOutput("It is fine.", made), attempt=1
    )

    assert (result.approved, bool(begun.model.prompts)) == (True, reviewed)


async def test_risky_policy_of_a_tool_has_tasks_reviewed_that_may_have_changed_something() -> None:
    put = replace(tool("put", Effect.UNSAFE), reflect="risky")
    begun = make_execution(APPROVED)
    call = begun.context.ledger.with_keys(ToolCall("t1.0.0", begun.context.run.id, "t1", put, {}))
    begun.context.ledger.intend([call])
    made = (FinishedCall("bench.put", {}, ToolOutcome(Observation.COMPLETED, "fine")),)

    await REVIEWER.review(
        task_of(begun, replace(CARD, tools=(put,), reflect="never")), AttemptOutput("It is fine.", made), attempt=1
    )

    assert begun.model.prompts
