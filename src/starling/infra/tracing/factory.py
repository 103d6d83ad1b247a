"""Opens the tracer. Without a destination opentelemetry is not imported."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from starling.core.settings.schema import Settings
from starling.core.tracing import NOOP_TRACER, Tracer
from starling.infra.tracing.destination import destination_of


@asynccontextmanager
async def open_tracer(settings: Settings) -> AsyncGenerator[Tracer]:
    """Yield the tracer; at the end unsent spans are sent, for at most two seconds."""
    destination = destination_of(settings)
    if destination is None:
        yield NOOP_TRACER
        return
    from starling.infra.tracing.export import open_span_tracer

    async with open_span_tracer(destination, with_content=settings.trace_content) as tracer:
        yield tracer


def caller_span(headers: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the ids of the trace and the span in `traceparent`; None without it, or if it is malformed."""
    if "traceparent" not in headers:
        return None
    from opentelemetry.trace import get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {"traceparent": headers["traceparent"]}
    found = get_current_span(TraceContextTextMapPropagator().extract(carrier)).get_span_context()
    return (f"{found.trace_id:032x}", f"{found.span_id:016x}") if found.is_valid else None
