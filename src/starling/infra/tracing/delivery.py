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
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from starling.infra.tracing.destination import Destination
from starling.infra.tracing.ids import RunIds
from starling.infra.tracing.scores import ScoreSender
from starling.infra.tracing.spans import SpanTracer

_SEND_SECONDS: Final = 3.0
_FLUSH_SECONDS: Final = 2.0
_WAIT_MS: Final = 1_000.0
_QUEUE, _BATCH = 8_192, 512
_NOISY: Final = ("opentelemetry.exporter.otlp", "opentelemetry.sdk._shared_internal")
_log = logging.getLogger(__name__)


class Watched(SpanExporter):
    """Warns once when spans can't be delivered, and says when they can again."""

    def __init__(self, inner: SpanExporter, endpoint: str) -> None:
        self._inner = inner
        self._endpoint = endpoint
        self._away = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._inner.export(spans)
        away = result is not SpanExportResult.SUCCESS
        if away and not self._away:
            _log.warning("traces can't be delivered to %s; runs go on, their spans are dropped", self._endpoint)
        elif self._away and not away:
            _log.info("traces are delivered to %s again", self._endpoint)
        self._away = away
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()


@asynccontextmanager
async def delivering(destination: Destination, *, with_content: bool) -> AsyncGenerator[SpanTracer]:
    """Yield a tracer whose spans are sent there. At the end waits two seconds for what is still to be sent."""
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # they report each batch; we report once
    provider = _provider(destination)
    scores = ScoreSender(destination, timeout=_SEND_SECONDS) if destination.scores else None
    tracer = provider.get_tracer("starling")
    try:
        yield SpanTracer(tracer, scores.send if scores else None, with_content=with_content)
    finally:
        await _within_time(provider.shutdown, *([scores.close] if scores else []))


def _provider(destination: Destination) -> TracerProvider:
    exporter = OTLPSpanExporter(
        destination.traces, headers=destination.headers, timeout=_SEND_SECONDS, compression=Compression.Gzip
    )
    resource = Resource.create({SERVICE_NAME: "starling", SERVICE_VERSION: version("starling-swarm")})
    provider = TracerProvider(resource=resource, id_generator=RunIds(), shutdown_on_exit=False)
    watched = Watched(exporter, destination.traces)
    provider.add_span_processor(
        BatchSpanProcessor(watched, max_queue_size=_QUEUE, schedule_delay_millis=_WAIT_MS, max_export_batch_size=_BATCH)
    )
    return provider


async def _within_time(*endings: Callable[[], None]) -> None:
    """Run these side by side in threads that nothing waits for once the time is up."""
    threads = [threading.Thread(target=ending, daemon=True, name="end-tracing") for ending in endings]
    for thread in threads:
        thread.start()
    loop = asyncio.get_running_loop()
    end = loop.time() + _FLUSH_SECONDS
    for thread in threads:
        await asyncio.to_thread(thread.join, max(0.0, end - loop.time()))
