"""Export of spans in a thread of its own. An unreachable collector does not delay runs and causes one warning."""

import asyncio
import gzip
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Final

import httpx
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource

from starling.core.clock import Clock, Deadline, SystemClock
from starling.core.outages import Outage
from starling.infra.tracing.delivery import BatchThread, attempts
from starling.infra.tracing.destination import Destination
from starling.infra.tracing.scores import ScoreClient, ScoreSender
from starling.infra.tracing.span_encoding import export_request
from starling.infra.tracing.spans import OpenSpan, SpanTracer

_SEND_SECONDS: Final = 3.0
_FLUSH_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 10.0
_QUEUE, _BATCH = 8_192, 512
_COMPRESSION: Final = 6  # more costs more processor time than it saves bytes
_REASON_CHARS: Final = 300  # of what is logged of an answer
_log = logging.getLogger(__name__)


class SpansNotTakenError(Exception):
    """The collector answered with an error."""

    def __init__(self, status_code: int, text: str) -> None:
        super().__init__(f"HTTP {status_code}: {text[:_REASON_CHARS]}")
        self.status_code = status_code


class SpanExporter:
    """Sends spans over HTTP, and logs outages of the collector.

    Encoding spans costs more than recording them, so during an outage they are dropped without being encoded, and
    delivery is retried every ten seconds.
    """

    def __init__(
        self,
        destination: Destination,
        encode: Callable[[Sequence[OpenSpan]], bytes],
        clock: Clock,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        headers = {
            **destination.headers,
            "content-type": "application/x-protobuf",
            "content-encoding": "gzip",
        }
        self._url = destination.traces
        self._http = httpx.Client(timeout=_SEND_SECONDS, headers=headers, transport=transport)
        self._encode = encode
        self._clock = clock
        self._pause = Deadline(clock, 0)
        failing = f"traces can't be delivered to {self._url}; spans are dropped until they can, runs continue"
        self._outage = Outage(_log, failing, f"traces are delivered to {self._url} again", clock.monotonic)

    def export(self, spans: Sequence[OpenSpan]) -> None:
        """Deliver spans, asking up to three times while the collector can't take them, or drop them."""
        if not self._pause.passed:
            return
        try:
            attempts()(self._post, gzip.compress(self._encode(spans), _COMPRESSION))
        except (SpansNotTakenError, httpx.HTTPError) as error:
            self._pause = Deadline(self._clock, _PAUSE_SECONDS)
            self._outage.failed(str(error) or type(error).__name__)
        else:
            self._outage.recovered()

    def close(self) -> None:
        self._http.close()

    def _post(self, body: bytes) -> None:
        answer = self._http.post(self._url, content=body)
        if not answer.is_success:
            raise SpansNotTakenError(answer.status_code, answer.text)


@asynccontextmanager
async def open_span_tracer(destination: Destination, *, with_content: bool) -> AsyncGenerator[SpanTracer]:
    """Yield a tracer that exports to the destination. At the end wait up to two seconds for unsent spans."""
    ours = Resource({SERVICE_NAME: "starling", SERVICE_VERSION: version("starling-swarm")})
    resource = ours.merge(OTELResourceDetector().detect()).attributes  # OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES

    def encode(spans: Sequence[OpenSpan]) -> bytes:
        return export_request(spans, resource, with_content=with_content, langfuse=bool(destination.langfuse))

    exporter = SpanExporter(destination, encode, SystemClock())
    spans = BatchThread("export-spans", exporter.export, limit=_QUEUE, batch=_BATCH)
    scores = ScoreSender(ScoreClient(destination, timeout=_SEND_SECONDS)) if destination.langfuse else None

    def close() -> None:
        spans.close()
        exporter.close()

    try:
        yield SpanTracer(spans.add, scores.send if scores else None, with_content=with_content)
    finally:
        await _run_with_time_limit(close, *([scores.close] if scores else []))


async def _run_with_time_limit(*functions: Callable[[], None]) -> None:
    """Run functions in parallel daemon threads and stop waiting after two seconds."""
    threads = [threading.Thread(target=function, daemon=True, name="end-tracing") for function in functions]
    for thread in threads:
        thread.start()
    loop = asyncio.get_running_loop()
    end = loop.time() + _FLUSH_SECONDS
    for thread in threads:
        await asyncio.to_thread(thread.join, max(0.0, end - loop.time()))
