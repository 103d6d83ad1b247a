"""Unsent scores in Postgres: what is taken, when, and what is left."""

from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.events.run_events import Done
from starling.core.runs import RunResult
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.retention import PruneSelection, Retention
from starling.infra.postgres.runs.acceptance import RunKey, RunRepository
from starling.infra.postgres.runs.broadcast import Broadcast
from starling.infra.postgres.runs.feedback import STATUS_UNSENT, FeedbackRepository, UnsentScoreRepository, UnsentScores
from starling.infra.postgres.runs.leases import Leases
from starling.infra.postgres.runs.writer import RunWriter
from tests.support.run_factories import claimed, defer_nothing, new_run

LOCAL = Actor("default", "local", "test")
FAILED = RunResult(status="failed", reply="No.", code="no_result")


@pytest.fixture
def unsent(engine: AsyncEngine) -> UnsentScoreRepository:
    return UnsentScoreRepository(engine)


@pytest.fixture
async def ended(engine: AsyncEngine) -> RunKey:
    return await failed_run(engine)


async def failed_run(engine: AsyncEngine) -> RunKey:
    """A run that failed, and whose status was not sent."""
    repository = RunRepository(engine, defer_nothing, cap=100)
    new = new_run()
    await repository.accept(new)
    claim = await claimed(Leases(engine, defer_nothing, repository.admit, graph_version=1), new.key)
    writer = RunWriter(engine, claim, Broadcast())
    await writer.end(FAILED, Done.model_validate(FAILED.model_dump(exclude={"plan"})), repository, [STATUS_UNSENT])
    await writer.close()
    return new.key


async def execute(engine: AsyncEngine, statement: str) -> None:
    async with engine.begin() as connection:
        await connection.execute(text(statement))


async def rows(engine: AsyncEngine) -> list[str]:
    async with engine.connect() as connection:
        return list(await connection.scalars(text("SELECT run_id::text FROM unsent_status_scores ORDER BY due_at")))


def values(found: UnsentScores) -> list[tuple[str, float | str, str]]:
    return [(score.name, score.value, score.comment) for score in found.scores]


async def test_status_and_failure_of_an_ended_run_are_taken_by_one_caller(
    unsent: UnsentScoreRepository, ended: RunKey
) -> None:
    [found] = await unsent.take(10)

    assert (found.run_id, found.expired) == (ended.id, False)
    assert values(found) == [("run_status", "failed", ""), ("run_failure", "no_result", "No.")]
    assert await unsent.take(10) == []


async def test_status_that_was_not_settled_is_taken_again_with_the_same_moment(
    unsent: UnsentScoreRepository, ended: RunKey, engine: AsyncEngine
) -> None:
    [first] = await unsent.take(10)
    await execute(engine, "UPDATE unsent_status_scores SET due_at = now()")
    [second] = await unsent.take(10)

    assert first.scores == second.scores
    assert first.run_id == ended.id


@pytest.mark.parametrize("was_sent", [True, False])
async def test_nothing_is_left_of_a_settled_status(
    unsent: UnsentScoreRepository, ended: RunKey, engine: AsyncEngine, was_sent: bool
) -> None:
    found = await unsent.take(10)
    await (unsent.settle(found, ()) if was_sent else unsent.settle((), found))

    assert [one.run_id for one in found] == [ended.id]
    assert await rows(engine) == []


async def test_status_of_a_pruned_run_is_still_sent(
    unsent: UnsentScoreRepository, ended: RunKey, engine: AsyncEngine
) -> None:
    await Retention(engine).prune(PruneSelection(timedelta(0)))

    [found] = await unsent.take(10)

    assert (found.run_id, len(found.scores)) == (ended.id, 2)


async def test_old_scores_are_taken_as_expired(
    unsent: UnsentScoreRepository, ended: RunKey, engine: AsyncEngine
) -> None:
    await FeedbackRepository(engine).give(ended, 0.5, "", LOCAL)
    await execute(engine, "UPDATE runs SET ended_at = now() - interval '8 days'")
    await execute(engine, "UPDATE feedback SET updated_at = now() - interval '8 days'")

    found = await unsent.take(10)

    assert [(one.kind, one.expired) for one in found] == [("feedback", True), ("status", True)]


async def test_where_nobody_sends_statuses_each_new_one_replaces_expired_ones(engine: AsyncEngine) -> None:
    for _ in range(3):
        await failed_run(engine)
    await execute(engine, "UPDATE unsent_status_scores SET due_at = now() - interval '8 days'")

    last = [(await failed_run(engine)).id for _ in range(2)]

    assert await rows(engine) == last


async def test_feedback_that_was_given_up_is_sent_again_once_it_is_replaced(
    unsent: UnsentScoreRepository, ended: RunKey, engine: AsyncEngine
) -> None:
    feedback = FeedbackRepository(engine)
    await unsent.settle(await unsent.take(10), ())
    await feedback.give(ended, 0.5, "Short.", LOCAL)
    await unsent.settle((), await unsent.take(10))
    after_giving_up = await unsent.take(10)
    await feedback.give(ended, 1.0, "Fine.", LOCAL)

    [found] = await unsent.take(10)

    assert after_giving_up == []
    assert values(found) == [("user_feedback", 1.0, "Fine.")]


@pytest.mark.parametrize("was_sent", [True, False])
async def test_feedback_that_was_replaced_during_its_delivery_stays_unsent(
    unsent: UnsentScoreRepository, ended: RunKey, engine: AsyncEngine, was_sent: bool
) -> None:
    feedback = FeedbackRepository(engine)
    await unsent.settle(await unsent.take(10), ())
    await feedback.give(ended, 0.0, "", LOCAL)
    [first] = await unsent.take(10)
    await feedback.give(ended, 1.0, "", LOCAL)
    await (unsent.settle([first], ()) if was_sent else unsent.settle((), [first]))

    [second] = await unsent.take(10)

    moments = [(score.moment, score.source) for one in (first, second) for score in one.scores]
    assert [score.value for score in second.scores] == [1.0]
    assert moments[0] == moments[1]
