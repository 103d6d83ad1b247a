"""Export of spans in a thread of its own. An unreachable collector does not delay runs and causes one warning."""

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


class OutageLoggingExporter(SpanExporter):
    """Logs one warning when spans can't be delivered, and one line when they can be again.

    Encoding spans costs more than recording them, so during an outage they are dropped without being encoded, and
    delivery is retried every ten seconds.
    """

    def __init__(self, inner: SpanExporter, endpoint: str, clock: Clock) -> None:
        self._inner = inner
        self._endpoint = endpoint
        self._clock = clock
        self._pause = Deadline(clock, 0)
        self._unavailable = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if not self._pause.passed:
            return SpanExportResult.FAILURE
        result = self._inner.export(spans)
        unavailable = result is not SpanExportResult.SUCCESS
        if unavailable and not self._unavailable:
            _log.warning(
                "traces can't be delivered to %s; spans are dropped until they can, runs continue", self._endpoint
            )
        elif self._unavailable and not unavailable:
            _log.info("traces are delivered to %s again", self._endpoint)
        self._unavailable = unavailable
        self._pause = Deadline(self._clock, _PAUSE_SECONDS if unavailable else 0)
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()


@asynccontextmanager
async def open_span_tracer(destination: Destination, *, with_content: bool) -> AsyncGenerator[SpanTracer]:
    """Yield a tracer that exports to the destination. At the end wait up to two seconds for unsent spans."""
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # they log each failed batch
    processor = _processor(destination)
    resource = Resource.create({SERVICE_NAME: "starling", SERVICE_VERSION: version("starling-swarm")})
    scores = ScoreSender(destination, timeout=_SEND_SECONDS) if destination.scores else None
    try:
        yield SpanTracer(processor, resource, scores.send if scores else None, with_content=with_content)
    finally:
        await _run_with_time_limit(processor.shutdown, *([scores.close] if scores else []))


def _processor(destination: Destination) -> BatchSpanProcessor:
    exporter = OTLPSpanExporter(
        destination.traces, headers=destination.headers, timeout=_SEND_SECONDS, compression=Compression.Gzip
    )
    logging_exporter = OutageLoggingExporter(exporter, destination.traces, SystemClock())
    return BatchSpanProcessor(
        logging_exporter, max_queue_size=_QUEUE, schedule_delay_millis=_WAIT_MS, max_export_batch_size=_BATCH
    )


async def _run_with_time_limit(*functions: Callable[[], None]) -> None:
    """Run functions in parallel daemon threads and stop waiting after two seconds."""
    threads = [threading.Thread(target=function, daemon=True, name="end-tracing") for function in functions]
    for thread in threads:
        thread.start()
    loop = asyncio.get_running_loop()
    end = loop.time() + _FLUSH_SECONDS
    for thread in threads:
        await asyncio.to_thread(thread.join, max(0.0, end - loop.time()))
