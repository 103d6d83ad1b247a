"""Trials of teams: what a case comes to is recorded, with the source of each result, and nothing is changed by it."""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from brain.agents.runtimes.team import TeamTrial
from brain.agents.turn.agent_runtime import TaskExecution
from brain.execution.graph import StarRunner
from brain.registry.cards import GENERALIST
from brain.registry.team_cards import team_card
from brain.skills.memory import FinishedTask, Lesson, SkillSearch
from brain.state import TaskDispatch
from starling.core.agents import Persona
from starling.core.clock import SystemClock
from starling.core.errors import JournalDivergedError, SuspendedError
from starling.core.settings.schema import Limits
from starling.core.teams.proofs import TrialRecord
from starling.core.teams.spec import Example, Fixture
from starling.core.teams.stars import Member, StarLimits, StarSpec
from starling.core.tool_calls import Effect, Observation, ReviewPolicy
from starling.core.tools import ToolCall, ToolOutcome
from tests.support.in_memory_run import Execution, ScriptedAnswer, make_execution, make_run, tool_calls
from tests.support.model_documents import decision_json, verdict_json
from tests.support.model_documents import task as planned
from tests.support.runtime_harness import dispatch, star_runner
from tests.support.scripted_gateway import TrialGateway, tool

LOOK, FIX = tool_calls(("look", {"thing": "disk"})), tool_calls(("fix", {"thing": "disk"}))
APPROVED, REJECTED = verdict_json("APPROVED"), verdict_json("REJECTED", "It says nothing of the fan.")
PERSONA = Persona(role="watcher", goal="look at machines")
TOOLS = {"bench": {"bench.look": tool("look"), "bench.fix": tool("fix", Effect.UNSAFE)}}
WATCHER = Member(name="watcher", persona=PERSONA, server="bench", tools=("bench.look", "bench.fix"), runtime="native")
TEAM = StarSpec(name="machines", purpose="Looks after machines.", members=(WATCHER,))
NESTED = StarSpec(
    name="outer", purpose="Leads.", members=(Member(name="inner", persona=PERSONA, team=TEAM, runtime="native"),)
)
FIXED = Fixture(tool="bench.fix", result="the disk is fixed")
PLAN = decision_json(planned("t1", "watcher", "look after the disk"))


@dataclass
class SteppingClock(SystemClock):
    """A clock on which each look takes a minute of the day."""

    looks: int = 0

    def now(self) -> datetime:
        self.looks += 1
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=self.looks)


@dataclass
class Memory:
    """Remembers which tasks a memory of skills was used for."""

    used_for: list[str] = field(default_factory=list[str])

    async def recall(self, tenant: str, card: object, task: str) -> SkillSearch:
        self.used_for.append(task)
        return SkillSearch()

    async def lesson(self, done: FinishedTask) -> Lesson:
        self.used_for.append(done.task)
        return Lesson()


def machines(call: ToolCall) -> ToolOutcome:
    return ToolOutcome(Observation.COMPLETED, f"the {call.arguments['thing']} is fine")


@dataclass
class Platform:
    """What executes stars, with all that they reach."""

    gateway: TrialGateway = field(default_factory=lambda: TrialGateway(machines))
    memory: Memory = field(default_factory=Memory)
    clock: SystemClock = field(default_factory=SteppingClock)

    @property
    def stars(self) -> StarRunner:
        return star_runner(self.gateway, self.clock, memory=self.memory)

    async def tried(
        self, begun: Execution, *fixtures: Fixture, star: StarSpec = TEAM, name: str = "case1"
    ) -> TrialRecord:
        """Try a team on a case, in the task `t4` of a run."""
        sent = dispatch("build a team", "generalist", path="t4", request="Build a team.", whole_plan=True)
        execution = TaskExecution(begun.context, GENERALIST, sent, "t4")
        case = Example(id="usual", input="Look after the disk.", fixtures=fixtures)
        card = replace(team_card(star, TOOLS), reflect="always")
        return await TeamTrial(self.stars, self.clock).run(execution, card, case, name)


@pytest.fixture
def platform() -> Platform:
    return Platform()


def sources(record: TrialRecord) -> list[tuple[str, str, str, str]]:
    return [(call.tool, call.path, call.status, call.source) for call in record.calls]


WORK: list[ScriptedAnswer] = [PLAN, tool_calls(("look", {"thing": "disk"}), ("fix", {"thing": "disk"})), APPROVED]


async def test_trial_reads_live_and_answers_what_would_change_something(platform: Platform) -> None:
    begun = make_execution(*WORK, "The disk is fixed [1].")

    record = await platform.tried(begun, FIXED)

    assert (record.path, record.reply, record.failure) == ("t4.case1", "The disk is fixed.", "")
    assert [call.tool.full_name for call in platform.gateway.calls] == ["bench.look"]
    assert sources(record) == [
        ("bench.look", "t4.case1/t1", "succeeded", "live"),
        ("bench.fix", "t4.case1/t1", "succeeded", "fixture"),
    ]
    assert [(verdict.member, verdict.status) for verdict in record.verdicts] == [("watcher", "approved")]
    assert (record.tokens, record.seconds) == (4 * 18, 60.0)


async def test_trial_leaves_no_row_in_the_ledger_and_uses_no_skills(platform: Platform) -> None:
    begun = make_execution(*WORK, "Done.")

    await platform.tried(begun, FIXED)

    assert vars(begun.context.ledger)["_rows"] == {}
    assert platform.memory.used_for == []


async def test_request_of_a_trial_is_its_case_and_its_text_is_not_for_the_user(platform: Platform) -> None:
    begun = make_execution(*WORK, "Done.", history=[{"role": "user", "content": "Build a team for the fan."}])

    await platform.tried(begun, FIXED)

    assert "Look after the disk." in begun.model.prompts[0]
    assert not any("fan" in text for text in begun.model.prompts)
    assert begun.text == ""
    assert [event["path"] for event in begun.events("plan")] == ["t4.case1"]


async def test_reviewer_sees_which_result_was_simulated(platform: Platform) -> None:
    begun = make_execution(PLAN, FIX, APPROVED, "Done.")

    await platform.tried(begun)

    assert "[simulated: " in begun.model.prompts[2]
    assert "recorded, not executed" in begun.model.prompts[2]


async def test_calls_of_teams_inside_and_of_every_attempt_are_in_the_record(platform: Platform) -> None:
    lead = decision_json(planned("t2", "inner", "look after the disk"))
    begun = make_execution(
        lead, PLAN, FIX, REJECTED, FIX, APPROVED, "Fixed.", APPROVED, "Done.", limits=Limits(max_attempts=2)
    )

    record = await platform.tried(begun, star=NESTED)

    assert record.reply == "Done."
    assert sources(record) == [("bench.fix", "t4.case1/t2/t1", "succeeded", "simulated")] * 2


async def test_calls_of_failed_tasks_are_in_the_record_with_why_they_failed(platform: Platform) -> None:
    again = decision_json(planned("t1", "watcher", "look again"))
    begun = make_execution(
        PLAN, FIX, REJECTED, again, LOOK, REJECTED, decision_json(is_in_loop=True), limits=Limits(max_attempts=1)
    )

    record = await platform.tried(begun)

    assert (record.reply, record.failure) == ("", "watcher: It says nothing of the fan.")
    assert [(verdict.status, verdict.reason) for verdict in record.verdicts] == [
        ("failed", "It says nothing of the fan.")
    ] * 2
    assert sources(record) == [
        ("bench.fix", "t4.case1/t1", "succeeded", "simulated"),
        ("bench.look", "t4.case1/t1.2", "succeeded", "live"),
    ]


async def test_call_that_never_left_counts_as_simulated_and_invented_tools_do_not_count() -> None:
    def refused(call: ToolCall) -> ToolOutcome:
        return ToolOutcome(Observation.NOT_SENT, "It was removed.", code="removed")

    platform = Platform(TrialGateway(refused))
    begun = make_execution(
        PLAN,
        tool_calls(("look", {"thing": "disk"}), ("invented", {})),
        decision_json(is_in_loop=True),
        limits=Limits(max_attempts=1),
    )

    record = await platform.tried(begun)

    assert sources(record) == [("bench.look", "t4.case1/t1", "failed", "simulated")]


@pytest.mark.parametrize(("calls", "reviewed"), [(LOOK, 0), (FIX, 1)])
async def test_risky_results_of_a_trial_are_reviewed(platform: Platform, calls: Any, reviewed: int) -> None:
    policy: ReviewPolicy = "risky"
    star = TEAM.model_copy(update={"members": (WATCHER.model_copy(update={"reflect": policy}),)})
    begun = make_execution(PLAN, calls, *[APPROVED] * reviewed, "Done.")

    record = await platform.tried(begun, star=star)

    assert (record.reply, len(begun.events("reflection"))) == ("Done.", reviewed)


async def test_equal_calls_of_one_answer_are_one_call_as_they_are_in_a_run(platform: Platform) -> None:
    begun = make_execution(PLAN, tool_calls(*[("fix", {"thing": "disk"})] * 2), APPROVED, "Done.")

    record = await platform.tried(begun)

    assert sources(record) == [("bench.fix", "t4.case1/t1", "succeeded", "simulated")]
    assert begun.warnings == ["identical_calls"]


async def test_supervisor_of_a_trial_may_not_ask_the_user(platform: Platform) -> None:
    begun = make_execution(*WORK, "Done.")

    await platform.tried(begun, FIXED)

    assert "question" not in str(begun.model.requests[0].response)


async def test_team_that_uses_up_its_own_tokens_fails_its_trial_and_not_the_build(platform: Platform) -> None:
    star = TEAM.model_copy(update={"limits": StarLimits(tokens=20)})
    begun = make_execution(PLAN, LOOK, run=make_run(tokens=1_000))

    record = await platform.tried(begun, star=star)

    assert "tokens" in record.failure
    assert begun.context.budget.exhausted_reason == ""


@pytest.mark.parametrize("is_recorded", [True, False], ids=["whole", "without_result"])
async def test_resumed_trial_asks_nothing_again_and_gives_the_same_record(
    platform: Platform, is_recorded: bool
) -> None:
    first = make_execution(*WORK, "The disk is fixed [1].")
    record = await platform.tried(first, FIXED)
    if not is_recorded:
        first.sink.entries[:] = [
            entry for entry in first.sink.entries if entry.kind != "result" or entry.path != "t4.case1.star"
        ]
        platform.clock = SteppingClock(looks=1)
    again = make_execution(after=first, run=make_run(fence=2))

    assert await platform.tried(again, FIXED) == record
    assert (again.model.requests, len(platform.gateway.calls)) == ([], 1)


@pytest.mark.parametrize("answers", range(1, len(WORK) + 1))
async def test_trial_that_was_cut_off_goes_on_where_it_was(answers: int) -> None:
    platform, whole = Platform(clock=SystemClock()), [*WORK, "The disk is fixed [1]."]
    expected = await platform.tried(make_execution(*whole), FIXED)
    first = make_execution(*whole[:answers], ConnectionError("crash"))
    with pytest.raises(ConnectionError):
        await platform.tried(first, FIXED)
    second = make_execution(*whole[answers:], after=first, run=make_run(fence=2))

    record = await platform.tried(second, FIXED)

    assert record.model_copy(update={"seconds": 0}) == expected.model_copy(update={"seconds": 0})
    assert second.model.answers == []


async def test_drained_trial_suspends_its_task(platform: Platform) -> None:
    begun = make_execution(PLAN)
    runner = platform.stars
    runner.drain()

    with pytest.raises(SuspendedError):
        await TeamTrial(runner, platform.clock).run(
            TaskExecution(begun.context, GENERALIST, cast("TaskDispatch", {}), "t4"),
            team_card(TEAM, TOOLS),
            Example(id="usual", input="Look."),
            "case1",
        )


@pytest.mark.parametrize("ends", [["Done."], [ConnectionError("crash")]], ids=["recorded", "begun"])
async def test_another_case_under_the_name_of_an_earlier_trial_is_refused(
    platform: Platform, ends: list[ScriptedAnswer]
) -> None:
    first = make_execution(*WORK, *ends)
    with suppress(ConnectionError):
        await platform.tried(first, FIXED)
    again = make_execution(after=first, run=make_run(fence=2))

    with pytest.raises(JournalDivergedError):
        await platform.tried(again)


@pytest.mark.parametrize(("tools", "warmed"), [(("bench.look", "bench.fix"), ["bench"]), (("bench.fix",), [])])
async def test_servers_of_which_a_trial_calls_nothing_are_not_started(
    platform: Platform, tools: tuple[str, ...], warmed: list[str]
) -> None:
    star = TEAM.model_copy(update={"members": (WATCHER.model_copy(update={"tools": tools}),)})
    begun = make_execution(PLAN, FIX, APPROVED, "Done.")

    await platform.tried(begun, star=star)

    assert platform.gateway.warmed == warmed


async def test_trials_of_one_task_are_apart(platform: Platform) -> None:
    begun = make_execution(PLAN, FIX, APPROVED, "First.", PLAN, LOOK, APPROVED, "Second.")

    records = [await platform.tried(begun, name=name) for name in ("case1", "case2")]

    assert [record.reply for record in records] == ["First.", "Second."]
    assert [call.path for record in records for call in record.calls] == ["t4.case1/t1", "t4.case2/t1"]
