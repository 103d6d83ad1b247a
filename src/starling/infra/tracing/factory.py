"""Opens what traces, where there is somewhere to send traces to. Otherwise opentelemetry isn't even imported."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starling.core.settings import Settings
from starling.core.tracing import NOOP_TRACER, Tracer
from starling.infra.tracing.destination import destination_of


@asynccontextmanager
async def open_tracer(settings: Settings) -> AsyncGenerator[Tracer]:
    """Yield the tracer; at the end, what it still holds is sent, for two seconds at most."""
    destination = destination_of(settings)
    if destination is None:
        yield NOOP_TRACER
        return
    from starling.infra.tracing.export import delivering  # noqa: PLC0415 - 0.1 s that only tracing pays

    async with delivering(destination, with_content=settings.trace_content) as tracer:
        yield tracer
