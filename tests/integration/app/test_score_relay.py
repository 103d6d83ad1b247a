"""Delivery of stored scores to a Langfuse that refuses some, or can't take any for a while."""

import logging
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from tenacity import wait_none

from starling.app.telemetry.score_relay import ScoreRelay
from starling.core.ids import trace_id_of
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.runs.acceptance import RunKey, RunRepository
from starling.infra.postgres.runs.feedback import FeedbackRepository, UnsentScoreRepository
from starling.infra.tracing.destination import Destination
from starling.infra.tracing.scores import ScoreClient
from tests.support.otlp_collector import BAD_REQUEST, REJECTED_SCORES, Collector
from tests.support.run_factories import defer_nothing, new_run
from tests.support.set_clock import SetClock

LOCAL = Actor("default", "local", "test")
BUSY: tuple[int, object] = (503, {"message": "busy"})
ATTEMPTS = 3
KEY = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"


@pytest.fixture
async def langfuse() -> AsyncGenerator[Collector]:
    async with Collector() as collector:
        yield collector


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@contextmanager
def relaying(
    engine: AsyncEngine, langfuse: Collector, clock: SetClock, *, with_comments: bool = True
) -> Generator[ScoreRelay]:
    client = ScoreClient(Destination("", langfuse=langfuse.url), timeout=3, pause=wait_none())
    yield ScoreRelay(UnsentScoreRepository(engine), client, clock, with_comments=with_comments)
    client.close()


@pytest.fixture
def relay(engine: AsyncEngine, langfuse: Collector, clock: SetClock) -> Generator[ScoreRelay]:
    with relaying(engine, langfuse, clock) as relay:
        yield relay


async def given(engine: AsyncEngine, count: int, comment: str = "") -> list[RunKey]:
    """Give feedback on so many runs."""
    found: list[RunKey] = []
    for number in range(count):
        new = new_run(thread=f"thread-{number}")
        await RunRepository(engine, defer_nothing, cap=100).accept(new)
        await FeedbackRepository(engine).give(new.key, 0.5, comment, LOCAL)
        found.append(new.key)
    return found


async def make_all_due(engine: AsyncEngine) -> None:
    """End the minute in which nobody else gets what was taken."""
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE feedback SET due_at = now() WHERE due_at <> 'infinity'"))


@pytest.mark.parametrize("status", [BAD_REQUEST, REJECTED_SCORES])
async def test_score_that_langfuse_refuses_is_given_up_and_the_others_are_delivered(
    relay: ScoreRelay,
    langfuse: Collector,
    engine: AsyncEngine,
    caplog: pytest.LogCaptureFixture,
    status: int,
) -> None:
    bad, *others = await given(engine, 5)
    langfuse.refused_traces[trace_id_of(bad.id)] = status

    with caplog.at_level(logging.WARNING):
        await relay.deliver()
        requests = len(langfuse.bodies)
        await make_all_due(engine)
        await relay.deliver()

    warned = [record.getMessage() for record in caplog.records]
    assert {score["traceId"] for score in langfuse.scores} == {trace_id_of(key.id) for key in others}
    assert len(langfuse.bodies) == requests
    assert [(bad.id in line, others[0].id in line) for line in warned] == [(True, False)]


async def test_pauses_grow_while_langfuse_is_away_and_one_warning_is_logged(
    relay: ScoreRelay, langfuse: Collector, engine: AsyncEngine, clock: SetClock, caplog: pytest.LogCaptureFixture
) -> None:
    [key] = await given(engine, 1)
    langfuse.score_answers = [BUSY] * ATTEMPTS * 3
    asked_at: list[int] = []

    with caplog.at_level(logging.INFO, "starling"):
        for second in range(0, 100, 5):
            clock.seconds, requests = second, len(langfuse.bodies)
            await make_all_due(engine)
            await relay.deliver()
            asked_at += [second] if len(langfuse.bodies) > requests else []

    assert asked_at == [0, 10, 30, 70]
    assert [score["traceId"] for score in langfuse.scores] == [trace_id_of(key.id)]
    assert [record.levelname for record in caplog.records if "scores" in record.getMessage()] == ["WARNING", "INFO"]


async def test_wrong_key_gives_up_no_score(
    relay: ScoreRelay, langfuse: Collector, engine: AsyncEngine, clock: SetClock
) -> None:
    await given(engine, 2)
    langfuse.score_answers = [(401, {"message": "Invalid credentials"})]

    await relay.deliver()
    clock.seconds = 10
    await make_all_due(engine)
    await relay.deliver()

    assert len(langfuse.scores) == 2


async def test_what_looks_like_a_key_in_a_comment_is_not_sent(
    relay: ScoreRelay, langfuse: Collector, engine: AsyncEngine
) -> None:
    await given(engine, 1, f"It shows {KEY}.")

    await relay.deliver()

    assert ["***" in score["comment"] for score in langfuse.scores] == [True]
    assert not any(KEY.encode() in body for body in langfuse.bodies)


async def test_comments_are_not_sent_where_content_is_not(langfuse: Collector, engine: AsyncEngine) -> None:
    await given(engine, 1, "It told the time of another city.")

    with relaying(engine, langfuse, SetClock(), with_comments=False) as relay:
        await relay.deliver()

    assert ["comment" in score for score in langfuse.scores] == [False]
