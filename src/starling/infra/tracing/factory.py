"""Opens the tracer. Without a destination opentelemetry is not imported."""

from collections.abc import AsyncGenerator
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
