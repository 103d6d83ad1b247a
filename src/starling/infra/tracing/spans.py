"""The tracer on opentelemetry, with attribute names of OpenTelemetry and Langfuse."""

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from random import getrandbits
from time import time_ns
from types import TracebackType
from typing import Final, Self, cast

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, Status, StatusCode, TraceFlags
from opentelemetry.util.types import AttributeValue

from starling.core.errors import SuspendedError
from starling.core.json import storable_text
from starling.core.runs import Run
from starling.core.tracing import NOOP_SPAN, Attributes, Describe, NoopSpan, SpanKind
from starling.infra.tracing.content import content_text

SEGMENT: Final = "run.segment"
_CONTENT: Final = {"input": "langfuse.observation.input", "output": "langfuse.observation.output"}
_TAGS: Final = "langfuse.trace.tags"
_TYPE: Final = "langfuse.observation.type"
_SHARED: Final = ("langfuse.session.id", "langfuse.trace.name", "tenant", "correlation_id", "epoch")
_SAMPLED, _UNSET, _SCOPE = TraceFlags(TraceFlags.SAMPLED), Status(), InstrumentationScope("starling")
_LEVEL, _MESSAGE = "langfuse.observation.level", "langfuse.observation.status_message"


@dataclass(frozen=True, slots=True)
class Score:
    """A score of one span, with hexadecimal ids for Langfuse."""

    trace_id: str
    span_id: str
    name: str
    value: float
    comment: str


type SendScore = Callable[[Score], None]


class OpenSpan:
    """An open span. It is not opentelemetry's current span, so spans of other libraries are not its children.

    Uses the classes of the SDK except `Span`, whose locks, samplers and limits would cost more than all the rest.
    """

    __slots__ = (
        "_attributes",
        "_begun",
        "_events",
        "_links",
        "_name",
        "_outer",
        "_parent",
        "_status",
        "_to",
        "context",
    )

    def __init__(
        self, to: "SpanTracer", name: str, ids: SpanContext, parent: "OpenSpan | None", links: Sequence[Link] = ()
    ) -> None:
        self.context = ids
        self._to = to
        self._name = name
        self._parent = parent
        self._links = links
        self._attributes: dict[str, AttributeValue] = {}
        self._events: list[Event] = []
        self._status = _UNSET
        self._outer: OpenSpan | None = None
        self._begun = time_ns()

    def __enter__(self) -> Self:
        self._outer = _CURRENT.get()
        _CURRENT.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _CURRENT.set(self._outer)  # not by token: an abandoned stream is closed in a different context
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            self._attributes |= {"starling.interrupted": True, _LEVEL: "WARNING"}
        elif isinstance(error, SuspendedError):
            self._attributes["starling.waiting"] = True  # not a failure: the next claim of the run continues here
        elif error is not None:
            self._attributes["error.type"] = getattr(error, "code", type(error).__qualname__)
            self.fail(str(error))
        self._to.ended(self._recorded())

    def set(self, describe: Describe) -> None:
        self.write(describe())

    def fail(self, reason: str) -> None:
        """Mark the span as failed. The reason may quote inputs and outputs, so it counts as content."""
        reason = content_text(reason) if self._to.with_content else ""
        self._status = Status(StatusCode.ERROR, reason)
        self._attributes |= {_LEVEL: "ERROR", _MESSAGE: reason}

    def write(self, attributes: Attributes) -> None:
        """Add attributes, with content and tags under the names of Langfuse."""
        for name, value in attributes.items():
            if name in _CONTENT:
                if self._to.with_content:
                    self._attributes[_CONTENT[name]] = content_text(value)
            elif value is not None:
                self._attributes[_TAGS if name == "tags" else name] = _utf8_safe(value)

    def add_event(self, name: str, attributes: Mapping[str, AttributeValue]) -> None:
        """Add an event to the span."""
        self._events.append(Event(name, attributes, time_ns()))

    def child(self, name: str) -> "OpenSpan":
        ids = SpanContext(self.context.trace_id, getrandbits(64) or 1, is_remote=False, trace_flags=_SAMPLED)
        child = OpenSpan(self._to, name, ids, self)
        child._attributes.update((name, self._attributes[name]) for name in _SHARED)
        return child

    def _recorded(self) -> ReadableSpan:
        return ReadableSpan(
            name=self._name,
            context=self.context,
            parent=self._parent and self._parent.context,
            resource=self._to.resource,
            attributes=self._attributes,
            events=self._events,
            links=self._links,
            status=self._status,
            start_time=self._begun,
            end_time=time_ns(),
            instrumentation_scope=_SCOPE,
        )


_CURRENT: ContextVar[OpenSpan | None] = ContextVar("starling_span", default=None)


class SpanTracer:
    """Passes ended spans to a processor. Spans outside of a run segment are not recorded."""

    def __init__(
        self, processor: SpanProcessor, resource: Resource, send_score: SendScore | None, *, with_content: bool
    ) -> None:
        self.ended = processor.on_end
        self.resource = resource
        self.with_content = with_content
        self._send_score = send_score

    def segment(self, run: Run) -> OpenSpan:
        segment = OpenSpan(self, SEGMENT, segment_of(run, run.fence), None, _previous_segment_link(run))
        segment.write(_segment_attributes(run))
        return segment

    def span(self, name: str, kind: SpanKind, describe: Describe) -> OpenSpan | NoopSpan:
        current = _CURRENT.get()
        if current is None:
            return NOOP_SPAN
        child = current.child(name)
        child.write({_TYPE: kind.value})
        child.set(describe)
        return child

    def score(self, name: str, value: float, comment: str) -> None:
        current = _CURRENT.get()
        if current is None:
            return
        comment = content_text(comment) if self.with_content else ""
        if self._send_score is not None:
            of = current.context
            self._send_score(Score(f"{of.trace_id:032x}", f"{of.span_id:016x}", name, value, comment))
            return
        current.add_event(
            "gen_ai.evaluation.result",
            {
                "gen_ai.evaluation.name": name,
                "gen_ai.evaluation.score.value": value,
                "gen_ai.evaluation.explanation": comment,
            },
        )


def _utf8_safe(value: object) -> AttributeValue:
    """Return a value without characters that UTF-8 can't encode, which would fail the whole batch."""
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, list):
        return [storable_text(str(item)) for item in cast("list[object]", value)]
    return cast("AttributeValue", value)


def segment_of(run: Run, fence: int) -> SpanContext:
    """Return the ids of the root span of a run's claim, computed from run and fence alone."""
    digest = hashlib.sha256(f"{run.id}/{fence}".encode()).digest()
    span_id = int.from_bytes(digest[:8]) or 1
    return SpanContext(int(run.trace_id, 16), span_id, is_remote=fence != run.fence, trace_flags=_SAMPLED)


def _previous_segment_link(run: Run) -> Sequence[Link]:
    """Return the link to the segment of the previous claim, whose span may have been lost in a crash."""
    return [Link(segment_of(run, run.fence - 1), {"starling.link": "former_segment"})] if run.fence > 1 else []


def _segment_attributes(run: Run) -> Attributes:
    return {
        _TYPE: SpanKind.AGENT.value,
        "langfuse.session.id": run.thread_id,
        "langfuse.trace.name": "run",
        "langfuse.trace.metadata.tenant": run.tenant,
        "langfuse.trace.metadata.correlation_id": run.correlation_id,
        "tenant": run.tenant,
        "correlation_id": run.correlation_id,
        "epoch": run.epoch,
        "starling.run_id": run.id,
        "starling.segment": run.fence,
        "input": run.input,
        "tags": [f"epoch:{run.epoch}"],
    }
