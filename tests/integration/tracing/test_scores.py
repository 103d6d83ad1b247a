"""Scores on their way to Langfuse."""

from dataclasses import replace

from starling.infra.tracing.destination import Destination
from starling.infra.tracing.export import open_span_tracer
from tests.support.otlp_collector import Collector
from tests.unit.infra.tracing.test_export import RUN


async def test_unusual_score_comment_does_not_block_later_scores(collector: Collector) -> None:
    langfuse = f"{collector.url}/api/public"
    run, there = replace(RUN, trace_id="2" * 32), Destination(f"{langfuse}/otel/v1/traces", scores=f"{langfuse}/scores")

    async with open_span_tracer(there, with_content=True) as tracer:
        with tracer.segment(run):
            for comment in ("half a pair: \ud800", "x" * 5_000, "fine"):
                tracer.score("verdict", 1.0, comment)
        await collector.until(lambda found: len(found.scores) == 3)

    assert [score["comment"] for score in collector.scores] == [
        "half a pair: \N{REPLACEMENT CHARACTER}",
        "x" * 4_000 + "… [5,000 characters]",
        "fine",
    ]
