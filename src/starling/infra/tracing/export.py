"""Sends spans from a thread of its own. A collector that is away costs a run nothing and one warning."""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Final

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from starling.core.clock import Clock, Deadline, SystemClock
from starling.infra.tracing.destination import Destination
from starling.infra.tracing.scores import ScoreSender
from starling.infra.tracing.spans import SpanTracer

_SEND_SECONDS: Final = 3.0
_FLUSH_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 10.0
_WAIT_MS: Final = 1_000.0
_QUEUE, _BATCH = 8_192, 512
_NOISY: Final = ("opentelemetry.exporter.otlp", "opentelemetry.sdk._shared_internal")
_log = logging.getLogger(__name__)


class Watched(SpanExporter):
    """Warns once when spans can't be delivered, and says when they can again.

    Writing spans down for the wire costs more than making them, so while the collector is away they are dropped as
    they are, and it is tried again every ten seconds.
    """

    def __init__(self, inner: SpanExporter, endpoint: str, clock: Clock) -> None:
        self._inner = inner
        self._endpoint = endpoint
        self._clock = clock
        self._pause = Deadline(clock, 0)
        self._away = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if not self._pause.passed:
            return SpanExportResult.FAILURE
        result = self._inner.export(spans)
        away = result is not SpanExportResult.SUCCESS
        if away and not self._away:
            _log.warning("traces can't be delivered to %s; runs go on, their spans are dropped", self._endpoint)
        elif self._away and not away:
            _log.info("traces are delivered to %s again", self._endpoint)
        self._away = away
        self._pause = Deadline(self._clock, _PAUSE_SECONDS if away else 0)
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()


@asynccontextmanager
async def delivering(destination: Destination, *, with_content: bool) -> AsyncGenerator[SpanTracer]:
    """Yield a tracer whose spans are sent there. At the end waits two seconds for what is still to be sent."""
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # they report each batch; we report once
    processor = _processor(destination)
    resource = Resource.create({SERVICE_NAME: "starling", SERVICE_VERSION: version("starling-swarm")})
    scores = ScoreSender(destination, timeout=_SEND_SECONDS) if destination.scores else None
    try:
        yield SpanTracer(processor, resource, scores.send if scores else None, with_content=with_content)
    finally:
        await _within_time(processor.shutdown, *([scores.close] if scores else []))


def _processor(destination: Destination) -> BatchSpanProcessor:
    exporter = OTLPSpanExporter(
        destination.traces, headers=destination.headers, timeout=_SEND_SECONDS, compression=Compression.Gzip
    )
    watched = Watched(exporter, destination.traces, SystemClock())
    return BatchSpanProcessor(
        watched, max_queue_size=_QUEUE, schedule_delay_millis=_WAIT_MS, max_export_batch_size=_BATCH
    )


async def _within_time(*endings: Callable[[], None]) -> None:
    """Run these side by side in threads that nothing waits for once the time is up."""
    threads = [threading.Thread(target=ending, daemon=True, name="end-tracing") for ending in endings]
    for thread in threads:
        thread.start()
    loop = asyncio.get_running_loop()
    end = loop.time() + _FLUSH_SECONDS
    for thread in threads:
        await asyncio.to_thread(thread.join, max(0.0, end - loop.time()))
