"""Export of spans to an unreachable collector."""

import asyncio
import logging
import socket

import httpx
import pytest

from starling.core.tracing import SpanKind
from starling.infra.tracing.destination import Destination
from starling.infra.tracing.export import SpanExporter, open_span_tracer
from tests.support.run_factories import CLAIMED_RUN
from tests.support.set_clock import SetClock


def test_export_pauses_while_the_collector_is_unreachable(caplog: pytest.LogCaptureFixture) -> None:
    answers, clock = [403, 403, 200, 200], SetClock()
    collector = httpx.MockTransport(lambda _: httpx.Response(answers.pop(0), text="locked"))
    exporter = SpanExporter(Destination("http://collector"), lambda _: b"", clock, collector)

    with caplog.at_level(logging.INFO):
        for clock.seconds in (0, 5, 9.9, 10, 15, 20, 21):
            exporter.export(())

    assert answers == []
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "HTTP 403: locked" in caplog.text


async def test_collector_that_never_answers_delays_shutdown_by_two_seconds_at_most() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with asyncio.timeout(60):  # it may take two seconds
            async with open_span_tracer(Destination(url, langfuse=url), with_content=True) as tracer:
                with tracer.segment(CLAIMED_RUN), tracer.span("reflection", SpanKind.EVALUATOR, dict):
                    tracer.score("verdict", 1, "")
