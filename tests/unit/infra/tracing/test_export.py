"""Export of spans to an unreachable collector."""

import asyncio
import logging
import socket

import pytest

from starling.core.tracing import SpanKind
from starling.infra.tracing.destination import Destination
from starling.infra.tracing.export import SpanExporter, SpansNotTakenError, open_span_tracer
from tests.support.run_factories import CLAIMED_RUN
from tests.support.set_clock import SetClock


class Collector:
    """Answers as it is told to, and counts what it was asked."""

    def __init__(self, *answers: bool) -> None:
        self.answers = list(answers)

    def post(self, body: bytes) -> None:
        del body
        if not self.answers.pop(0):
            raise SpansNotTakenError(503, "busy")


def test_export_pauses_while_the_collector_is_unreachable(caplog: pytest.LogCaptureFixture) -> None:
    collector, clock = Collector(False, False, True, True), SetClock()
    exporter = SpanExporter(lambda _: b"", collector.post, "http://collector", clock)

    with caplog.at_level(logging.INFO):
        for clock.seconds in (0, 5, 9.9, 10, 15, 20, 21):
            exporter.export(())

    assert collector.answers == []
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "HTTP 503: busy" in caplog.text


async def test_collector_that_never_answers_delays_shutdown_by_two_seconds_at_most() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with asyncio.timeout(60):  # it may take two seconds
            async with open_span_tracer(Destination(url, langfuse=url), with_content=True) as tracer:
                with tracer.segment(CLAIMED_RUN), tracer.span("reflection", SpanKind.EVALUATOR, dict):
                    tracer.score("verdict", 1, "")
