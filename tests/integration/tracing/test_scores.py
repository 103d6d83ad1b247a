"""Scores on their way to Langfuse: verdicts, feedback, and the status of each run that ends, whoever ended it."""

import asyncio
import logging
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from psycopg import AsyncConnection
from tenacity import wait_none

from starling.core.ids import trace_id_of
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.tracing.destination import Destination
from starling.infra.tracing.export import open_span_tracer
from starling.infra.tracing.scores import Score, ScoreClient, ScoreSender
from tests.integration.tracing.conftest import Open
from tests.support.otlp_collector import Collector
from tests.support.platform import ScriptedModel, decision
from tests.support.run_factories import CLAIMED_RUN

SCORE = Score("2" * 32, "3" * 16, "verdict", 1.0, "fine", datetime(2026, 11, 20, tzinfo=UTC))
NOTHING: dict[str, object] = {}
REJECTED = {"accepted": 0, "rejected": 1, "errors": [{"index": 0, "message": "no such trace"}]}


def destination(collector: Collector) -> Destination:
    return Destination(f"{collector.url}/api/public/otel/v1/traces", langfuse=collector.url)


async def test_unusual_score_comment_does_not_block_later_scores(collector: Collector) -> None:
    async with open_span_tracer(destination(collector), with_content=True) as tracer:
        with tracer.segment(replace(CLAIMED_RUN, trace_id="2" * 32)):
            for comment in ("half a pair: \ud800", "x" * 5_000, "fine"):
                tracer.score("verdict", 1.0, comment)
        await collector.until(lambda found: len(found.scores) == 3)

    assert [score["comment"] for score in collector.scores] == [
        "half a pair: \N{REPLACEMENT CHARACTER}",
        "x" * 4_000 + "… [5,000 characters]",
        "fine",
    ]


@pytest.mark.parametrize(
    ("answers", "delivered", "warned"),
    [
        pytest.param([(503, NOTHING), (429, NOTHING)], True, "", id="taken in the end"),
        pytest.param([(500, NOTHING)] * 3, False, "HTTP 500", id="a failure that lasts"),
        pytest.param([(401, {"message": "Invalid credentials"})], False, "Invalid credentials", id="a wrong key"),
        pytest.param([(207, REJECTED)], False, "no such trace", id="rejected one by one"),
        pytest.param([(207, {"errors": ["no trace"]})], False, "no trace", id="rejected in another form"),
        pytest.param([(200, ["taken"])], False, "none of Langfuse's API", id="an answer in another form"),
    ],
)
async def test_scores_that_langfuse_does_not_take_at_once(
    collector: Collector,
    caplog: pytest.LogCaptureFixture,
    answers: list[tuple[int, object]],
    delivered: bool,
    warned: str,
) -> None:
    collector.score_answers = list(answers)
    sender = ScoreSender(ScoreClient(destination(collector), timeout=3, pause=wait_none()))

    with caplog.at_level(logging.WARNING):
        sender.send(SCORE)
        await asyncio.to_thread(sender.close)

    assert [score["id"] for score in collector.scores] == ([SCORE.id] if delivered else [])
    assert [warned in record.getMessage() for record in caplog.records] == ([] if delivered else [True])


def test_client_of_scores_starts_no_threads_and_no_tracer_provider() -> None:
    program = """
import threading
from opentelemetry import trace
from tenacity import wait_none
from starling.infra.tracing.destination import Destination
from starling.infra.tracing.scores import ScoreClient, ScoreError
from tests.integration.tracing.test_scores import SCORE

client = ScoreClient(Destination("", langfuse="http://127.0.0.1:9"), timeout=1, pause=wait_none())
try:
    client.send([SCORE])
except ScoreError as error:
    print(type(trace.get_tracer_provider()).__name__, threading.active_count())
"""

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "ProxyTracerProvider 1\n"


LOCAL, KEY = Actor("default", "local", "test"), Actor("default", "key_1", "test")


def feedback_in(collector: Collector) -> list[tuple[str, float, str]]:
    found = [score for score in collector.scores if score["name"] == "user_feedback"]
    return [(score["id"], score["value"], score.get("comment", "")) for score in found]


async def test_feedback_is_a_score_of_the_trace_that_later_feedback_replaces(
    opened: Open, script: ScriptedModel, collector: Collector
) -> None:
    script.supervisor(decision(reply="Hello!"))
    keys = {"langfuse_public_key": "pk-lf-1", "langfuse_secret_key": "sk-lf-secret"}

    async with opened(**keys, langfuse_host=collector.url) as platform:
        run = (await platform.ask("Hi.")).key
        give = platform.services.runs.feedback.give
        for number, (score, actor) in enumerate(((0.0, LOCAL), (1.0, KEY), (0.5, LOCAL)), start=1):
            await give(run, score, "", actor)
            await collector.until(lambda found, number=number: len(feedback_in(found)) == number)

    scores = [score for score in collector.scores if score["name"] == "user_feedback"]
    first, other, replaced = scores
    assert collector.refused == []
    assert [score["value"] for score in scores] == [0.0, 1.0, 0.5]
    assert {(score["traceId"], "observationId" in score) for score in scores} == {(trace_id_of(run.id), False)}
    assert (first["id"], first["timestamp"]) == (replaced["id"], replaced["timestamp"])
    assert other["id"] != first["id"]


async def test_feedback_that_langfuse_did_not_take_is_sent_later(
    opened: Open, script: ScriptedModel, collector: Collector
) -> None:
    script.supervisor(decision(reply="Hello!"))
    keys = {"langfuse_public_key": "pk-lf-1", "langfuse_secret_key": "sk-lf-secret"}
    async with opened() as platform:
        run = (await platform.ask("Hi.")).key
        await platform.services.runs.feedback.give(run, 0.5, "Short.", LOCAL)  # where there is no Langfuse

    async with opened(**keys, langfuse_host=collector.url):
        await collector.until(lambda found: len(feedback_in(found)) == 1)

    assert [found[1:] for found in feedback_in(collector)] == [(0.5, "Short.")]


KEYS = {"langfuse_public_key": "pk-lf-1", "langfuse_secret_key": "sk-lf-secret"}
CANCELLED = [("run_failure", "cancelled"), ("run_status", "cancelled")]


def statuses(collector: Collector, key: RunKey) -> list[tuple[str, str]]:
    trace_id = trace_id_of(key.id)
    return sorted((score["name"], score["value"]) for score in collector.scores if score["traceId"] == trace_id)


async def unsent(url: str) -> int:
    async with await AsyncConnection.connect(url) as connection:
        row = await (await connection.execute("SELECT count(*) FROM unsent_status_scores")).fetchone()
        return row[0] if row else 0


async def test_run_that_was_cancelled_before_a_worker_had_it_sends_its_status(
    opened: Open, collector: Collector, database_url: str
) -> None:
    async with opened(**KEYS, langfuse_host=collector.url) as platform:
        key = await platform.accept("Hi.")
        await platform.services.runs.cancellation.cancel(key)

    assert statuses(collector, key) == CANCELLED
    assert collector.refused == []
    assert await unsent(database_url) == 0


async def test_run_that_was_cancelled_while_it_waited_for_an_answer_sends_its_status(
    opened: Open, script: ScriptedModel, collector: Collector
) -> None:
    script.supervisor(decision(question="Which disk?", options=["the first", "the second"]))

    async with opened(**KEYS, langfuse_host=collector.url) as platform:
        key = await platform.accept("How full is the disk?")
        await platform.brain.execute(await platform.claim(key))
        await platform.services.runs.cancellation.cancel(key)

    assert statuses(collector, key) == CANCELLED


async def test_run_that_a_process_without_langfuse_cancelled_has_its_status_sent_by_a_worker(
    opened: Open, collector: Collector
) -> None:
    async with opened() as platform:
        key = await platform.accept("Hi.")
        await platform.services.runs.cancellation.cancel(key)
    before = statuses(collector, key)

    async with opened(**KEYS, langfuse_host=collector.url):
        await collector.until(lambda found: statuses(found, key) == CANCELLED)

    assert before == []


async def test_run_that_ended_while_langfuse_was_away_has_its_status_sent_later(
    opened: Open, script: ScriptedModel, collector: Collector, database_url: str
) -> None:
    script.supervisor(decision(reply="Hello!"))
    async with opened(**KEYS, langfuse_host="http://127.0.0.1:9") as platform:
        key = (await platform.ask("Hi.")).key
    async with await AsyncConnection.connect(database_url) as connection:
        await connection.execute("UPDATE unsent_status_scores SET due_at = now()")  # the minute of its last delivery

    async with opened(**KEYS, langfuse_host=collector.url):
        await collector.until(lambda found: bool(found.scores))

    assert statuses(collector, key) == [("run_status", "succeeded")]
    assert await unsent(database_url) == 0


@pytest.mark.parametrize("tracing", [{}, {"otlp_endpoint": "http://127.0.0.1:9"}])
async def test_worker_without_langfuse_stores_nothing_to_send(
    opened: Open, script: ScriptedModel, database_url: str, tracing: Mapping[str, Any]
) -> None:
    script.supervisor(decision(reply="Hello!"))

    async with opened(**tracing) as platform:
        await platform.ask("Hi.")

    assert await unsent(database_url) == 0
