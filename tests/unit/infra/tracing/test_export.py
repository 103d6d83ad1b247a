"""Export of spans to an unreachable collector."""

import asyncio
import logging
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from starling.core.runs import Run, RunConfig
from starling.core.tracing import SpanKind
from starling.infra.tracing.destination import Destination
from starling.infra.tracing.export import OutageLoggingExporter, open_span_tracer

SUCCESS, FAILURE = SpanExportResult.SUCCESS, SpanExportResult.FAILURE
RUN = Run(
    tenant="default",
    id="run",
    thread_id="thread",
    branch_id="branch",
    epoch=1,
    graph_version=1,
    input="How is the disk?",
    config=RunConfig(),
    correlation_id="correlation",
    trace_id="1" * 32,
    fence=1,
    crashes=0,
    remaining_seconds=60,
    claimed_at=datetime(2026, 11, 20, tzinfo=UTC),
)


@dataclass(slots=True)
class SetClock:
    """Stands still until it is set."""

    seconds: float = 0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds


class Exporter(SpanExporter):
    """Answers as it is told to, and counts what it was asked."""

    def __init__(self, *results: SpanExportResult) -> None:
        self.results = list(results)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return self.results.pop(0)


def test_export_pauses_while_the_collector_is_unreachable(caplog: pytest.LogCaptureFixture) -> None:
    exporter, clock = Exporter(FAILURE, FAILURE, SUCCESS, SUCCESS), SetClock()
    exporter_with_log = OutageLoggingExporter(exporter, "http://collector", clock)

    with caplog.at_level(logging.INFO):
        for clock.seconds in (0, 5, 9.9, 10, 15, 20, 21):
            exporter_with_log.export(())

    assert exporter.results == []
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_collector_that_never_answers_delays_shutdown_by_two_seconds_at_most() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with asyncio.timeout(10):  # it may take two seconds
            async with open_span_tracer(Destination(url, scores=url), with_content=True) as tracer:
                with tracer.segment(RUN), tracer.span("reflection", SpanKind.EVALUATOR, dict):
                    tracer.score("verdict", 1, "")
