"""Limits of a team: its seconds over several lives of a run, and what is said of those that the run's own override."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from brain.agents.runtimes.team import team_context
from brain.registry.team_cards import team_card
from starling.core.agents import Persona
from starling.core.clock import SystemClock
from starling.core.settings.schema import Limits
from starling.core.teams.stars import Member, StarLimits, StarSpec
from starling.infra.postgres.runs.writer import JournalEntry
from tests.support.in_memory_run import Execution, make_execution, make_run
from tests.unit.brain.agents.runtimes import test_team

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
WRITER = Member(name="writer", persona=Persona(role="writer", goal="write"), runtime="native")


def team(**limits: float) -> StarSpec:
    return StarSpec(name="machines", purpose="Writes.", members=(WRITER,), limits=StarLimits.model_validate(limits))


def life(number: int, at: datetime, known: Sequence[JournalEntry]) -> Execution:
    """The execution of the run that begins then and knows the entries of those before."""
    before = make_execution()
    before.sink.entries[:] = known
    return make_execution(run=replace(make_run(fence=number), claimed_at=at), after=before, seconds=1_000)


def worked(execution: Execution, star: StarSpec, *moments: datetime, path: str = "t3") -> float:
    """Begin the team in this life, store entries inside it at these moments; return the seconds that it had left."""
    context = team_context(execution.context, team_card(star, {}), path, SystemClock())
    left = context.budget.deadline.remaining()
    for number, at in enumerate(moments):
        result = JournalEntry(f"{path}/t1", "tool", 100 * execution.context.run.fence + number, 0, "", {}, at=at)
        execution.sink.entries.append(result)
    return left


def test_seconds_of_a_team_go_on_where_they_were_after_each_resume() -> None:
    star, known, left = team(seconds=50), list[JournalEntry](), list[float]()
    for number, begun in enumerate((NOON, NOON + timedelta(days=1), NOON + timedelta(days=3)), start=1):
        execution = life(number, begun, known)
        left.append(worked(execution, star, begun + timedelta(seconds=5), begun + timedelta(seconds=20)))
        known += execution.sink.entries

    assert left == pytest.approx([50, 30, 10], abs=1)


def test_team_that_used_its_seconds_has_none_after_a_resume() -> None:
    first = life(1, NOON, ())
    worked(first, team(seconds=10), NOON + timedelta(seconds=60))

    assert worked(life(2, NOON + timedelta(hours=1), first.sink.entries), team(seconds=10)) == 0


def test_seconds_of_another_task_of_the_team_are_its_own() -> None:
    first = life(1, NOON, ())
    worked(first, team(seconds=50), NOON + timedelta(seconds=20))

    left = worked(life(2, NOON + timedelta(hours=1), first.sink.entries), team(seconds=50), path="t4")

    assert left == pytest.approx(50, abs=1)


async def warnings_of(star: StarSpec, limits: Limits | None = None, after: Execution | None = None) -> list[str]:
    answers = [test_team.decision_json(reply="All is fine."), test_team.APPROVED]
    run = make_run(fence=2 if after else 1)
    begun = make_execution(*answers, agents=[test_team.card(star)], limits=limits, run=run, after=after)
    await test_team.pipeline().run(begun.context, test_team.dispatch(star.name))
    return [event["message"] for event in begun.events("warning") if event["code"] == "limits_overridden"]


async def test_run_says_which_limits_of_a_team_its_own_override() -> None:
    [message] = await warnings_of(team(seconds=600, iterations=12, tokens=900), Limits(supervisor_calls=6))

    assert "machines" in message
    assert "seconds 600 (the run: 60)" in message
    assert "iterations 12 (the run: 6)" in message
    assert "tokens" not in message  # this run has no limit on them


async def test_run_says_nothing_of_limits_that_hold() -> None:
    assert await warnings_of(team(seconds=30, iterations=2, tokens=900)) == []
