"""Scores on their way to Langfuse."""

import asyncio
import logging
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tenacity import wait_none

from starling.infra.tracing.destination import Destination
from starling.infra.tracing.export import open_span_tracer
from starling.infra.tracing.scores import Score, ScoreClient, ScoreSender
from tests.support.otlp_collector import Collector
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
from starling.infra.tracing.destination import Destination
from starling.infra.tracing.scores import ScoreClient, ScoreError
from tests.integration.tracing.test_scores import SCORE

client = ScoreClient(Destination("", langfuse="http://127.0.0.1:9"), timeout=1)
client.hurry()
try:
    client.send([SCORE])
except ScoreError as error:
    print(type(trace.get_tracer_provider()).__name__, threading.active_count())
"""

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "ProxyTracerProvider 1\n"
