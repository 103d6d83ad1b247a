"""The tracer over opentelemetry: our spans, under its names and Langfuse's."""

import asyncio
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, cast

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanContext, StatusCode, TraceFlags
from opentelemetry.util.types import AttributeValue

from starling.core.runs import Run
from starling.core.tracing import NO_SPAN, Describe, NoSpan, SpanKind
from starling.infra.tracing.content import shown
from starling.infra.tracing.ids import NEXT_ROOT, Root, segment_span_id

SEGMENT: Final = "run.segment"
_CONTENT: Final = {"input": "langfuse.observation.input", "output": "langfuse.observation.output"}
_TAGS: Final = "langfuse.trace.tags"
_LEVEL, _MESSAGE = "langfuse.observation.level", "langfuse.observation.status_message"


@dataclass(frozen=True, slots=True)
class Score:
    """A score of one span. Ids are hexadecimal, as Langfuse wants them."""

    trace_id: str
    span_id: str
    name: str
    value: float
    comment: str


type SendScore = Callable[[Score], None]


@dataclass(frozen=True, slots=True)
class _Here:
    """Where the code that runs is: its span, and what every span of its run carries."""

    span: trace.Span
    common: Mapping[str, AttributeValue]


_HERE: ContextVar[_Here | None] = ContextVar("starling_span", default=None)


class OpenSpan:
    """A span and its block. It isn't opentelemetry's current span, so other libraries' spans stay out."""

    __slots__ = ("_here", "_outer", "_with_content")

    def __init__(self, here: _Here, *, with_content: bool) -> None:
        self._here = here
        self._with_content = with_content
        self._outer: _Here | None = None

    def __enter__(self) -> Self:
        self._outer = _HERE.get()
        _HERE.set(self._here)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _HERE.set(self._outer)  # not by token: an abandoned stream is closed in another context than its own
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            self._here.span.set_attributes({"starling.interrupted": True, _LEVEL: "WARNING"})
        elif error is not None:
            self._here.span.set_attribute("error.type", getattr(error, "code", type(error).__qualname__))
            self.fail(str(error))
        self._here.span.end()

    def set(self, describe: Describe) -> None:
        span = self._here.span
        for name, value in describe().items():
            if name in _CONTENT:
                if self._with_content:
                    span.set_attribute(_CONTENT[name], shown(value))
            elif value is not None:
                span.set_attribute(_TAGS if name == "tags" else name, cast("AttributeValue", value))

    def fail(self, reason: str) -> None:
        """Mark it as failed. The reason may quote what was asked or answered, so it counts as content."""
        reason = shown(reason) if self._with_content else ""
        self._here.span.set_status(StatusCode.ERROR, reason)
        self._here.span.set_attributes({_LEVEL: "ERROR", _MESSAGE: reason})


class SpanTracer:
    """Opens spans on one opentelemetry tracer. What isn't part of a run's segment isn't traced."""

    def __init__(self, tracer: trace.Tracer, send_score: SendScore | None, *, with_content: bool) -> None:
        self._tracer = tracer
        self._send_score = send_score
        self._with_content = with_content

    @contextmanager
    def segment(self, run: Run) -> Generator[OpenSpan]:
        token = NEXT_ROOT.set(Root(int(run.trace_id, 16), segment_span_id(run.id, run.fence)))
        try:
            span = self._tracer.start_span(SEGMENT, Context(), links=_former(run))
        finally:
            NEXT_ROOT.reset(token)
        with self._opened(span, SpanKind.AGENT, _common(run)) as opened:
            opened.set(
                lambda: {
                    "starling.run_id": run.id,
                    "starling.segment": run.fence,
                    "input": run.input,
                    "tags": [f"epoch:{run.epoch}"],
                }
            )
            yield opened

    def span(self, name: str, kind: SpanKind, describe: Describe) -> OpenSpan | NoSpan:
        here = _HERE.get()
        if here is None:
            return NO_SPAN
        span = self._tracer.start_span(name, trace.set_span_in_context(here.span, Context()))
        opened = self._opened(span, kind, here.common)
        opened.set(describe)
        return opened

    def score(self, name: str, value: float, comment: str) -> None:
        here = _HERE.get()
        if here is None:
            return
        comment = comment if self._with_content else ""
        if self._send_score is not None:
            of = here.span.get_span_context()
            self._send_score(Score(f"{of.trace_id:032x}", f"{of.span_id:016x}", name, value, comment))
            return
        here.span.add_event(
            "gen_ai.evaluation.result",
            {
                "gen_ai.evaluation.name": name,
                "gen_ai.evaluation.score.value": value,
                "gen_ai.evaluation.explanation": comment,
            },
        )

    def _opened(self, span: trace.Span, kind: SpanKind, common: Mapping[str, AttributeValue]) -> OpenSpan:
        span.set_attributes({"langfuse.observation.type": kind.value, **common})
        return OpenSpan(_Here(span, common), with_content=self._with_content)


def _common(run: Run) -> dict[str, AttributeValue]:
    return {
        "langfuse.session.id": run.thread_id,
        "langfuse.trace.name": "run",
        "langfuse.trace.metadata.tenant": run.tenant,
        "langfuse.trace.metadata.correlation_id": run.correlation_id,
        "tenant": run.tenant,
        "correlation_id": run.correlation_id,
        "epoch": run.epoch,
    }


def _former(run: Run) -> list[Link]:
    """Return the link to the life before this one, which may have died before it could send its own span."""
    if run.fence <= 1:
        return []
    former = segment_span_id(run.id, run.fence - 1)
    context = SpanContext(int(run.trace_id, 16), former, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    return [Link(context, {"starling.link": "former_segment"})]
