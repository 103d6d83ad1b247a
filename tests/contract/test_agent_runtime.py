"""One suite for both agent runtimes: what they promise of models, tools, journal, ledger, interrupts and limits."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import pytest

from brain.agents.tools import requested_calls
from brain.interrupts.budget import OUT_OF_TIME
from brain.run.recorder import RunRecorder
from brain.run.tracing import TracedGateway, TracedModels
from starling.core.agents import RuntimeName
from starling.core.errors import LeaseLostError, LLMServerError, SuspendedError
from starling.core.llm import FailedAttempt, ModelReply, ModelRole, ModelToolCall
from starling.core.settings.schema import Limits
from starling.core.tool_calls import Observation, ReviewPolicy
from starling.core.tools import ToolCall, ToolDefinition, ToolOutcome, Trial
from tests.support.in_memory_run import Execution, MemorySink, make_execution, make_run, stored_interrupt, tool_calls
from tests.support.model_documents import verdict_json
from tests.support.recording_tracer import RecordingTracer
from tests.support.runtime_harness import END, TOOLS, RuntimeHarness, dispatch
from tests.support.scripted_gateway import ScriptedGateway, TrialGateway

APPROVED = verdict_json("APPROVED")
LOOK = tool_calls(("look", {"thing": "tea"}))
ORDER = tool_calls(("order", {"item": "tea"}))
BOTH = tool_calls(("order", {"item": "tea"}), ("look", {"thing": "tea"}))

type Harness = Callable[..., RuntimeHarness]


def numbered(call: ToolCall) -> ToolOutcome:
    return ToolOutcome(Observation.COMPLETED, f"tea number {call.index}")


def unanswered(call: ToolCall) -> ToolOutcome:
    return ToolOutcome(Observation.TIMED_OUT, f"{call.tool.name} did not answer.", code="timeout")


@pytest.fixture(params=["native", "crewai"])
def runtime(request: pytest.FixtureRequest) -> RuntimeName:
    return request.param


@pytest.fixture
def harness(runtime: RuntimeName) -> Harness:
    def make(answer: Callable[[ToolCall], ToolOutcome] | None = None, **fields: Any) -> RuntimeHarness:
        fields.setdefault("gateway", ScriptedGateway(answer) if answer else ScriptedGateway())
        return RuntimeHarness(runtime, **fields)

    return make


def calls(harness: RuntimeHarness) -> list[ToolCall]:
    assert isinstance(harness.gateway, ScriptedGateway)
    return harness.gateway.calls


def places(harness: RuntimeHarness) -> list[tuple[str, int, int]]:
    return [(call.tool.name, call.position, call.index) for call in calls(harness)]


def crashed(begun: Execution, *, answers: int, results: bool = True) -> Execution:
    """What a process that died had recorded: so many answers of the agent, and the results of calls that only read."""
    begun.sink.entries[:] = [
        entry
        for entry in begun.sink.entries
        if entry.kind == "context"
        or (entry.kind == "tool" and results)
        or (entry.kind == "answer" and entry.path == "t1" and entry.position < answers)
    ]
    return begun


async def test_calls_reach_the_gateway_as_the_model_wrote_them(harness: Harness) -> None:
    odd: Mapping[str, Any] = {"handle": "9.9", "self": 1, "class": {"def": [None, {"": "…"}]}, "kwargs": True}
    agent = harness()
    begun = agent.begin(*agent.answers(tool_calls(("look", odd))), APPROVED)

    outcome = await agent.run(begun)

    assert outcome["status"] == "approved", outcome["reason"]
    assert calls(agent)[0].arguments == odd
    assert calls(agent)[0].grant is begun.context.run.grant


async def test_call_of_another_tool_or_without_an_object_never_leaves(harness: Harness) -> None:
    wrong = ModelReply(
        "", tool_calls=(ModelToolCall("a", "drop", {}), ModelToolCall("a", "look", None, "nonsense"), *LOOK.tool_calls)
    )
    agent = harness()
    begun = agent.begin(*agent.answers(wrong), APPROVED)

    outcome = await agent.run(begun)

    assert places(agent) == [("look", 0, 2)]
    assert [use["status"] for use in outcome["tools"]] == ["failed", "failed", "succeeded"]


async def test_calls_are_announced_in_the_order_of_their_answer(harness: Harness) -> None:
    agent = harness()
    begun = agent.begin(*agent.answers(BOTH, LOOK), APPROVED)

    await agent.run(begun)

    announced = [event["call_id"] for event in begun.events("tool_start")]
    assert announced == ["t1.0.0", "t1.0.1", "t1.1.0"]
    assert begun.kinds[:3] == ["task_start", "tool_start", "tool_start"]


async def test_identical_parallel_calls_keep_their_rows_and_results_apart(harness: Harness) -> None:
    agent = harness(numbered)
    begun = agent.begin(*agent.answers(tool_calls(*[("look", {"thing": "tea"})] * 9), LOOK), APPROVED)

    await agent.run(begun)

    assert sorted(places(agent)) == [*(("look", 0, index) for index in range(9)), ("look", 1, 0)]
    shown = [message.content for message in begun.model.requests[1].messages if message.role == "tool"]
    assert shown[:9] == [f"tea number {index}" for index in range(9)]
    recorded = {(e.position, e.index): e.data["text"] for e in begun.sink.entries if e.kind == "tool"}
    assert recorded == {**{(0, index): f"tea number {index}" for index in range(9)}, (1, 0): "tea number 0"}


async def test_identical_calls_that_may_change_something_are_made_once_with_a_warning(harness: Harness) -> None:
    agent = harness()
    begun = agent.begin(*agent.answers(tool_calls(*[("order", {"item": "tea"})] * 3)), APPROVED)

    await agent.run(begun)

    assert places(agent) == [("order", 0, 0)]
    assert begun.warnings == ["identical_calls"]
    assert begun.context.ledger.settled == 1


async def test_the_same_call_in_each_answer_is_made_each_time(harness: Harness) -> None:
    agent = harness(limits=Limits(tool_iterations=6))
    begun = agent.begin(*agent.answers(*[ORDER] * 6), APPROVED)

    await agent.run(begun)

    assert places(agent) == [("order", position, 0) for position in range(6)]


async def test_more_calls_than_the_limits_allow_are_not_made_and_warned_of(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requested_calls, "CALLS_PER_ANSWER", 2)
    agent = harness()
    begun = agent.begin(*agent.answers(tool_calls(*(("look", {"n": n}) for n in range(4))), LOOK), APPROVED)

    await agent.run(begun)

    assert places(agent) == [("look", 0, 0), ("look", 0, 1), ("look", 1, 0)]
    assert begun.warnings == ["limit_reached"]


async def test_process_that_dies_between_two_answers_is_continued_without_asking_again(harness: Harness) -> None:
    agent = harness()
    begun = agent.begin(*agent.answers(BOTH, LOOK), APPROVED)
    await agent.run(begun)
    later = agent.answers(BOTH, LOOK)[1:]
    resumed = agent.begin(*later, APPROVED, after=crashed(begun, answers=1))

    outcome = await agent.run(resumed)

    assert outcome["status"] == "approved", outcome["reason"]
    assert [place for place in places(agent) if place[0] == "order"] == [("order", 0, 0)]
    assert len(resumed.model.requests) == len(later) + 1
    assert resumed.model.requests[0].messages == begun.model.requests[1].messages
    assert "task_start" not in resumed.kinds


async def test_recorded_attempt_is_resumed_without_a_model_to_the_same_result(harness: Harness) -> None:
    agent = harness()
    begun = agent.begin(*agent.answers(BOTH, LOOK), APPROVED)
    first = await agent.run(begun)
    resumed = agent.begin(APPROVED, after=crashed(begun, answers=99))

    outcome = await agent.run(resumed)

    assert outcome == first
    assert len(resumed.model.requests) == 1  # for the review, which was not recorded
    assert len(calls(agent)) == 3


async def test_other_request_than_the_recorded_one_fails_the_task(harness: Harness) -> None:
    agent = harness()
    begun = agent.begin(*agent.answers(LOOK), APPROVED)
    await agent.run(begun)
    changed = replace(agent, tools=agent.tools[:1])
    resumed = changed.begin(after=crashed(begun, answers=1, results=False))

    outcome = await changed.run(resumed)

    assert (outcome["status"], outcome.get("code")) == ("failed", "journal_diverged")
    assert resumed.model.requests == []


async def test_call_in_doubt_suspends_and_the_answer_of_a_person_is_its_result(harness: Harness) -> None:
    agent = harness(unanswered)
    begun = agent.begin(*agent.answers(BOTH))
    with pytest.raises(SuspendedError) as suspended:
        await agent.run(begun)
    asked = begun.events("in_doubt")[0]
    key = f"in_doubt/{next(iter(vars(begun.context.ledger)['_rows'].values())).key}/1"
    reply = stored_interrupt(asked, "in_doubt", key, payload={"resolution": "done", "result": "tea is ordered"})
    left = len(calls(agent))
    resumed = agent.begin(*agent.answers(BOTH)[1:], APPROVED, after=begun, interrupts=[reply])

    outcome = await agent.run(resumed)

    assert suspended.value.interrupts == (asked["id"],)
    assert outcome["status"] == "approved", outcome["reason"]
    assert [place for place in places(agent)[left:] if place[0] == "order"] == []
    texts = [message.content for request in resumed.model.requests for message in request.messages]
    assert any("tea is ordered" in text for text in texts)


async def test_call_that_was_given_up_while_unknown_fails_the_task(harness: Harness) -> None:
    agent = harness(unanswered)
    begun = agent.begin(*agent.answers(ORDER))
    with pytest.raises(SuspendedError):
        await agent.run(begun)
    key = f"in_doubt/{next(iter(vars(begun.context.ledger)['_rows'].values())).key}/1"
    reply = stored_interrupt(begun.events("in_doubt")[0], "in_doubt", key, payload={"resolution": "give_up"})
    resumed = agent.begin(after=begun, interrupts=[reply])

    outcome = await agent.run(resumed)

    assert (outcome["status"], outcome.get("code"), outcome.get("unknown")) == ("failed", "outcome_unknown", True)


async def test_budget_that_is_used_up_suspends_between_two_answers(harness: Harness) -> None:
    agent = harness()
    limited = make_run(tokens=18)
    begun = agent.begin(*agent.answers(ORDER, LOOK), run=limited)
    with pytest.raises(SuspendedError):
        await agent.run(begun)
    reply = stored_interrupt(begun.events("budget_required")[0], "budget", "budget/0", payload={"tokens": 10_000})
    resumed = agent.begin(*agent.answers(ORDER, LOOK)[1:], APPROVED, run=limited, after=begun, interrupts=[reply])

    outcome = await agent.run(resumed)

    assert outcome["status"] == "approved", outcome["reason"]
    assert places(agent) == [("order", 0, 0), ("look", 1, 0)]


async def test_every_answer_and_call_is_counted(harness: Harness) -> None:
    agent = harness()
    answers = [*agent.answers(BOTH, LOOK), APPROVED]
    begun = agent.begin(*answers)

    await agent.run(begun)

    meter = begun.context.budget.meter
    assert (meter.model_calls, meter.tool_calls) == (len(answers), 3)
    assert [step.type for step in begun.sink.steps].count("llm_call") == len(answers)


async def test_task_after_the_deadline_fails_without_a_model(harness: Harness) -> None:
    agent = harness()
    begun = agent.begin(seconds=0.0)

    outcome = await agent.run(begun)

    assert (outcome["status"], outcome["reason"]) == ("failed", OUT_OF_TIME)
    assert begun.model.requests == []


@pytest.mark.parametrize("reason", ["it said no", "429 Too Many Requests: rate limit", "context length exceeded"])
async def test_error_of_the_model_fails_the_task_at_once(harness: Harness, reason: str) -> None:
    agent = harness()
    begun = agent.begin(agent.answers(LOOK, LOOK)[0], LLMServerError("scripted:small", reason, status=429))

    outcome = await agent.run(begun)

    assert (outcome["status"], outcome.get("code")) == ("failed", "llm_server_error")
    assert reason in outcome["reason"]
    assert begun.model.answers == []
    assert len(begun.model.requests) == 2


async def test_agent_that_answers_nothing_is_asked_once_more_and_fails(harness: Harness) -> None:
    agent = harness()
    begun = agent.begin("", "")

    outcome = await agent.run(begun)

    assert (outcome["status"], outcome.get("code")) == ("failed", "llm_invalid_response")
    assert "No tool was called." in begun.model.prompts[1]


async def test_failed_attempts_of_a_model_are_recorded_with_its_answer(harness: Harness) -> None:
    agent = harness()
    failed = FailedAttempt("scripted:small", "llm_server_error", "it is overloaded")
    begun = agent.begin(failed, *agent.answers(LOOK), APPROVED)

    await agent.run(begun)

    answers = [entry for entry in begun.sink.entries if entry.kind == "answer"]
    assert answers[0].data["failed_attempts"] == 1


async def test_lost_lease_ends_the_attempt_before_anything_leaves(harness: Harness) -> None:
    agent = harness()
    begun = agent.begin(*agent.answers(ORDER))

    begun = replace(begun, context=replace(begun.context, recorder=RunRecorder(_LeaselessSink(begun.sink.run))))

    with pytest.raises(LeaseLostError):
        await agent.run(begun)
    assert calls(agent) == []


async def test_cancelled_attempt_ends_its_calls_and_writes_nothing_more(harness: Harness) -> None:
    gateway = _Silent()
    agent = harness(gateway=gateway)
    begun = agent.begin(*agent.answers(BOTH, LOOK))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(agent.run(begun))
        await gateway.reached.wait()
        written = len(begun.sink.entries), len(begun.sink.events)

        task.cancel()
        await asyncio.wait([task])

    assert task.cancelled()
    assert gateway.cancelled == 2
    await asyncio.sleep(0)
    assert (len(begun.sink.entries), len(begun.sink.events)) == written
    assert len(begun.model.requests) == 1


async def test_rejected_attempt_is_repeated_with_the_reasons(harness: Harness) -> None:
    agent = harness()
    begun = agent.begin(
        *agent.answers(LOOK), verdict_json("REJECTED", "It is the wrong tea."), *agent.answers(ORDER), APPROVED
    )

    outcome = await agent.run(begun)

    assert (outcome["status"], outcome["attempts"]) == ("approved", 2)
    assert places(agent) == [("look", 0, 0), ("order", calls(agent)[1].position, 0)]
    second = begun.model.requests[len(agent.answers(LOOK)) + 1]
    assert "It is the wrong tea." in second.messages[-1].content
    assert [message.role for message in second.messages].count("system") == 1


async def test_fixed_output_counts_after_its_own_approval(harness: Harness) -> None:
    agent = harness()
    fixed = verdict_json("FIXED", "The form is wrong.", refined="TEA")
    begun = agent.begin(*agent.answers(LOOK), fixed, APPROVED)

    outcome = await agent.run(begun)

    assert (outcome["status"], outcome["output"]) == ("approved", "TEA")


async def test_call_of_a_trial_is_answered_in_place_of_its_tool_and_never_again(harness: Harness) -> None:
    agent = harness(gateway=TrialGateway())
    first = in_trial(agent.begin(*agent.answers(BOTH), APPROVED))

    outcome = await agent.run(first)
    again = in_trial(agent.begin(APPROVED, after=crashed(first, answers=2), run=make_run(fence=2)))
    resumed = await agent.run(again)

    assert places(agent) == [("look", 0, 1)]
    assert [result["simulated"] for result in first.events("tool_result")] == ["simulated", None]
    assert vars(again.context.ledger)["_rows"] == {}
    assert resumed.get("calls") == outcome.get("calls")
    assert [(call["tool"], call["source"], call["status"]) for call in outcome.get("calls", ())] == [
        ("bench.order", "simulated", "succeeded"),
        ("bench.look", "live", "succeeded"),
    ]


async def test_spans_of_answers_and_calls_are_in_that_of_their_attempt(harness: Harness) -> None:
    tracer = RecordingTracer()
    agent = harness(tracer=tracer, gateway=TracedGateway(ScriptedGateway(), tracer))
    begun = agent.begin(*agent.answers(BOTH), APPROVED)
    traced = replace(begun.context.model, models=TracedModels(begun.model, tracer))
    begun = replace(begun, context=replace(begun.context, model=traced))

    await agent.run(begun)

    inside = "task t1 > attempt 1 > "
    made = [span.removeprefix(inside) for span in tracer.spans if span.startswith(inside)]
    asked = len(agent.answers(BOTH))
    assert [span for span in made if span.startswith("chat ")] == ["chat scripted:small"] * asked
    assert {"execute_tool bench.order", "execute_tool bench.look"} <= set(made)


async def test_last_answer_is_the_result(harness: Harness, runtime: RuntimeName) -> None:
    agent = harness()
    begun = agent.begin(*agent.answers(LOOK), APPROVED)

    outcome = await agent.run(begun)

    assert outcome["output"] == (END if runtime == "crewai" else "look is done")


async def test_member_of_a_team_asks_the_model_of_its_role(harness: Harness) -> None:
    agent = harness()
    member = replace(agent.card, kind="member", role=ModelRole.CODING)
    begun = make_execution(*agent.answers(LOOK), APPROVED, agents=[member])

    await agent.run(begun)

    asked = [request.role for request in begun.model.requests]
    assert asked == [*[ModelRole.CODING] * len(agent.answers(LOOK)), ModelRole.REASONING]


@pytest.mark.parametrize("kind", ["member", "custom"])
@pytest.mark.parametrize("policy", ["always", "risky", "never"])
async def test_agent_with_tools_that_calls_none_is_unable_whatever_is_reviewed(
    harness: Harness, kind: Literal["member", "custom"], policy: ReviewPolicy
) -> None:
    agent = harness()
    card = replace(agent.card, kind=kind, reflect=policy)
    begun = make_execution("I will read it.", "I have no tool that reads the differences.", agents=[card])

    outcome = await agent.run(begun)

    assert (outcome["status"], outcome.get("code"), outcome["attempts"]) == ("failed", "unable", 1)
    assert outcome["reason"] == "No tool was called; the agent wrote: “I have no tool that reads the differences.”"
    assert len(begun.model.requests) == 2


async def test_agent_that_is_told_to_call_is_resumed_with_what_it_was_told(harness: Harness) -> None:
    agent = harness()
    begun = agent.begin("I will look now.", *agent.answers(LOOK), APPROVED)
    first = await agent.run(begun)
    resumed = agent.begin(*agent.answers(LOOK), APPROVED, after=crashed(begun, answers=1, results=False))

    outcome = await agent.run(resumed)

    assert (first["status"], outcome["status"]) == ("approved", "approved")
    assert places(agent) == [("look", 1, 0)] * 2
    assert resumed.model.requests[0].messages == begun.model.requests[1].messages


async def test_words_that_ended_an_attempt_of_an_earlier_version_end_it_again(harness: Harness) -> None:
    agent = harness()
    begun = agent.begin("I will look now.", "I can't.")
    await agent.run(begun)
    earlier = crashed(begun, answers=1)
    earlier.sink.entries[:] = [entry for entry in earlier.sink.entries if "reminder" not in entry.data]
    resumed = agent.begin(after=earlier)

    outcome = await agent.run(resumed)

    assert (outcome.get("code"), resumed.model.requests) == ("unable", [])


@pytest.mark.parametrize("tools", [(), TOOLS], ids=["without tools", "with tools"])
async def test_call_that_is_unread_twice_fails_the_task(harness: Harness, tools: Sequence[ToolDefinition]) -> None:
    agent = harness(tools=tools)
    begun = agent.begin(*['<tool_call>{"name": "peek", "arguments": {}}</tool_call>'] * 2)

    outcome = await agent.run(begun)

    assert (outcome["status"], outcome.get("code")) == ("failed", "llm_invalid_response")
    assert "can't be read" in begun.model.requests[1].messages[-1].content


async def test_text_that_is_the_whole_reply_is_shown(harness: Harness) -> None:
    agent = harness(tools=())
    begun = agent.begin("Tea is a drink.", verdict_json("REJECTED", "Too short."), "Tea is a hot drink.", APPROVED)

    await agent.pipeline().run(begun.context, {**dispatch(), "whole_plan": True})

    assert begun.text.strip() == "Tea is a hot drink."


def in_trial(begun: Execution) -> Execution:
    return replace(begun, context=replace(begun.context, trial=Trial()))


class _LeaselessSink(MemorySink):
    """A sink of a worker that has lost its lease."""

    async def flush(self) -> None:
        raise LeaseLostError(self.run.id, self.run.fence)


class _Silent(ScriptedGateway):
    """Never answers."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()
        self.cancelled = 0
        self._begun = 0

    async def call(self, call: ToolCall, deadline: Any, record: Any = None) -> ToolOutcome:
        del call, deadline, record
        self._begun += 1
        if self._begun == 2:
            self.reached.set()
        try:
            return await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


def linking(call: ToolCall) -> ToolOutcome:
    if call.resource:
        return ToolOutcome(Observation.COMPLETED, "The book says so.")
    return ToolOutcome(Observation.COMPLETED, "[resource book://1]", resources=("book://1",))


async def test_linked_resource_is_read_on_behalf_of_the_tool_that_linked_it(harness: Harness) -> None:
    agent = harness(linking)
    read = tool_calls(("read_resource", {"uri": "book://1"}))
    begun = agent.begin(*agent.answers(LOOK, read), APPROVED)

    outcome = await agent.run(begun)

    assert outcome["status"] == "approved"
    looked, followed = calls(agent)
    assert (followed.tool.full_name, followed.resource, followed.tool.effect) == (
        looked.tool.full_name,
        "book://1",
        "read",
    )
    offered = [[tool.name for tool in request.tools] for request in begun.model.requests[:2]]
    assert ["read_resource" in names for names in offered] == [False, True]
    assert begun.events("tool_result")[-1]["result"] == "The book says so."


async def test_resource_that_no_result_links_to_is_not_read(harness: Harness) -> None:
    agent = harness(linking)
    read = tool_calls(("read_resource", {"uri": "file:///etc/passwd"}))
    begun = agent.begin(*agent.answers(LOOK, read), APPROVED)

    await agent.run(begun)

    assert [call.resource for call in calls(agent)] == [""]
    assert "No result of this task names" in begun.events("tool_result")[-1]["result"]
