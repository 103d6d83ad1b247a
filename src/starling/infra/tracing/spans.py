"""The tracer: keeps what spans are described with. The thread that exports them does the rest."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from random import getrandbits
from time import time_ns
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import httpx

from starling.core.errors import SuspendedError
from starling.core.runs import Run
from starling.core.tracing import CALLER_SPAN, NOOP_SPAN, Attributes, CallerSpan, Describe, NoopSpan, SpanKind
from starling.infra.tracing.scores import Score

SEGMENT: Final = "run.segment"
LEVEL: Final = "langfuse.observation.level"
_LEAST_FAILURE: Final = 500  # status


class Opening(NamedTuple):
    """What a span was opened with. The spans in it have its tags and its team's version, too."""

    attributes: Attributes
    tags: tuple[str, ...]
    team_version: object


type SendScore = Callable[[Score], object]


@dataclass(slots=True, eq=False, repr=False)
class OpenSpan:
    """A span while it is open, and what is known of it once it has ended. Times are nanoseconds since 1970.

    It does as little as it can, since runs wait for it: `span_encoding` calls what is in `described` later, and keeps
    in `opening`, and in the root's `trace_tags`, what it needs for further spans.
    """

    _to: "SpanTracer"
    name: str
    kind: SpanKind
    described: list[Describe]
    span_id: int
    parent: "OpenSpan | None"
    trace_id: str
    remote: int = 0  # its parent in the caller's trace
    scores: Sequence[Score] = ()  # that are sent with it, as events
    former: int = 0  # the segment of the previous claim, whose span may have been lost in a crash
    failure: str | None = None
    opening: Opening | None = None
    ended: int = 0
    begun: int = field(default_factory=time_ns)
    root: "OpenSpan" = field(init=False)
    trace_tags: dict[str, None] = field(default_factory=dict[str, None])  # of the root
    _outer: "OpenSpan | None" = None

    def __post_init__(self) -> None:
        self.root = self.parent.root if self.parent else self

    def __enter__(self) -> Self:
        self._outer = _CURRENT.get()
        _CURRENT.set(self)
        _LATEST.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _LATEST.set(self)
        _CURRENT.set(self._outer)  # not by token: an abandoned stream is closed in a different context
        if error is not None:
            self._leave(error)
        self.ended = time_ns()
        self._to.export(self)

    def _leave(self, error: BaseException) -> None:
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            self.set(lambda: {"starling.interrupted": True, LEVEL: "WARNING"})
        elif isinstance(error, SuspendedError):
            # not a failure: the next claim of the run continues here
            self.set(lambda: {"starling.waiting": True})
        else:
            kind = getattr(error, "code", type(error).__qualname__)
            self.set(lambda: {"error.type": kind})
            self.fail(str(error))

    def set(self, describe: Describe) -> None:
        """Add attributes."""
        self.described.append(describe)

    def fail(self, reason: str) -> None:
        """Mark the span as failed. The reason may quote inputs and outputs, so it counts as content."""
        self.failure = reason


_CURRENT: ContextVar[OpenSpan | None] = ContextVar("starling_span", default=None)
_LATEST: ContextVar[OpenSpan | None] = ContextVar("starling_latest_span", default=None)


def trace_headers() -> dict[str, str]:
    """Return what tells a service, in headers or `_meta`, of which span a request is part; nothing without one."""
    span = _CURRENT.get()
    return {"traceparent": f"00-{span.trace_id}-{span.span_id:016x}-01"} if span else {}


def run_headers(trace_id: str, run_id: str) -> dict[str, str]:
    """Return the same for a request about a run: its span is the run's first segment."""
    return {"traceparent": f"00-{trace_id}-{_segment_id(run_id, 1):016x}-01"}


@cache
def trace_model_requests() -> None:
    """Make httpx send `traceparent` in model calls: packages of providers have no common way to add a header.

    Not in other spans: the tasks of a server's session have the one in which it was opened.
    """
    send: Any = httpx.AsyncClient.send

    async def traced(self: httpx.AsyncClient, request: httpx.Request, **options: Any) -> httpx.Response:
        if (span := _CURRENT.get()) and span.kind is SpanKind.GENERATION:
            request.headers.update(trace_headers())
        return await send(self, request, **options)

    setattr(httpx.AsyncClient, "send", traced)  # noqa: B010 - its type has each option


class SpanTracer:
    """Passes ended spans to `export`. Spans outside of a run segment are not recorded."""

    def __init__(
        self, export: Callable[[OpenSpan], object], send_score: SendScore | None, *, with_content: bool
    ) -> None:
        self.export = export
        self._send_score = send_score
        self._with_content = with_content

    def request(self) -> Callable[[str, int, Attributes], None] | None:
        if self._send_score is not None:  # Langfuse takes a trace's root for the run
            return None
        sent, begun = CALLER_SPAN.get() or CallerSpan("", 0), time_ns()
        own = CallerSpan(sent.trace_id, getrandbits(64) or 1)
        CALLER_SPAN.set(own)

        def end(name: str, status: int, attributes: Attributes) -> None:
            trace_id = own.trace_id or f"{getrandbits(128):032x}"
            described: list[Describe] = [lambda: {**attributes, "http.response.status_code": status or None}]
            span = OpenSpan(self, name, SpanKind.CHAIN, described, own.span_id, None, trace_id, sent.span_id)
            span.failure = None if 0 < status < _LEAST_FAILURE else f"HTTP {status}"
            span.begun, span.ended = begun, time_ns()
            self.export(span)

        return end

    def segment(self, run: Run) -> OpenSpan:
        describe, span_id = partial(_segment_attributes, run), _segment_id(run.id, run.fence)
        segment = OpenSpan(self, SEGMENT, SpanKind.AGENT, [describe], span_id, None, run.trace_id)
        segment.remote = int(run.parent_span or "0", 16)
        if run.fence > 1:
            segment.former = _segment_id(run.id, run.fence - 1)
        return segment

    def span(self, name: str, kind: SpanKind, describe: Describe) -> OpenSpan | NoopSpan:
        current = _CURRENT.get()
        if current is None:
            return NOOP_SPAN
        return OpenSpan(self, name, kind, [describe], getrandbits(64) or 1, current, current.trace_id)

    def span_id(self) -> str:
        latest = _LATEST.get() if _CURRENT.get() else None
        return f"{latest.span_id:016x}" if latest else ""

    def score(self, name: str, value: float | str, comment: str, *, of_trace: bool = False) -> None:
        current = _CURRENT.get()
        if current is None or (of_trace and self._send_score is not None):
            return
        moment = datetime.fromtimestamp(time_ns() / 1e9, UTC)
        shown = comment if self._with_content else ""
        score = Score(current.trace_id, f"{current.span_id:016x}", name, value, shown, moment)
        if self._send_score is not None:
            self._send_score(score)
        else:
            current.scores = (*current.scores, score)


def _segment_id(run_id: str, fence: int) -> int:
    """Return the id of the root span of a run's claim, computed from run and fence alone."""
    digest = hashlib.sha256(f"{run_id}/{fence}".encode()).digest()
    return int.from_bytes(digest[:8]) or 1


def _segment_attributes(run: Run) -> Attributes:
    origin = run.forked_from and run.forked_from.model_dump_json(exclude={"changes": {"input"}}, exclude_defaults=True)
    return {
        "langfuse.session.id": run.thread_id,
        "langfuse.trace.name": "run",
        "langfuse.trace.metadata.tenant": run.tenant,
        "langfuse.trace.metadata.correlation_id": run.correlation_id,
        "langfuse.trace.metadata.run_id": run.id,
        "langfuse.trace.metadata.epoch": run.epoch,
        "tenant": run.tenant,
        "correlation_id": run.correlation_id,
        "epoch": run.epoch,
        "starling.run_id": run.id,
        "starling.segment": run.fence,
        "input": run.input,
        "tags": [f"epoch:{run.epoch}"],
        "starling.forked_from": origin,
    }
