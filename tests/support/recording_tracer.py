"""A tracer that remembers its spans with their parents, for tests without an exporter."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from starling.core.runs import Run
from starling.core.tracing import NOOP_SPAN, Describe, NoopSpan, SpanKind

_CURRENT: ContextVar[str] = ContextVar("_CURRENT", default="")


@dataclass(slots=True)
class RecordingTracer:
    """Remembers each span by the names of all spans that it is in: `task t1 > attempt 1`."""

    spans: list[str] = field(default_factory=list[str])

    def request(self) -> None:
        return None

    @contextmanager
    def segment(self, run: Run) -> Generator[NoopSpan]:
        del run
        yield NOOP_SPAN

    @contextmanager
    def span(self, name: str, kind: SpanKind, describe: Describe) -> Generator[NoopSpan]:
        del kind, describe
        parent = _CURRENT.get()
        path = f"{parent} > {name}" if parent else name
        self.spans.append(path)
        token = _CURRENT.set(path)
        try:
            yield NOOP_SPAN
        finally:
            _CURRENT.reset(token)

    def span_id(self) -> str:
        return ""

    def score(self, name: str, value: float | str, comment: str, *, of_trace: bool = False) -> None:
        del name, value, comment, of_trace
