"""Port of tracing. Without a trace destination the no-op tracer is used, which costs next to nothing."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import TracebackType
from typing import Final, Protocol, Self

from starling.core.ids import trace_id_of
from starling.core.runs import Run

type Attributes = Mapping[str, object]
"""Strings, numbers, booleans and lists of strings by name; None is omitted.

`input` and `output` are content: any JSON, shortened, and omitted if tracing of content is off. `tags` is a list of
strings by which traces can be searched; the spans inside a span have the tags that it was opened with, too, and a run's
segment has those of all its spans. Attributes named in `SEARCHED` are metadata of the observation.
"""

SEARCHED: Final = frozenset(
    {
        "agent_name",
        "reflection_status",
        "tool_usage",
        "team_version",
        "clarification_count",
        "next_agent",
        "iteration",
    }
)
"""Attributes by which observations can be filtered, as metadata beside their tags."""

type Describe = Callable[[], Attributes]
"""Creates attributes if the span is recorded: later, and in another thread. So what it refers to is never changed."""


@dataclass(slots=True)
class CallerSpan:
    """Ids of the span that the run of a request is in. An empty trace becomes that of the run."""

    trace_id: str
    span_id: int


CALLER_SPAN: Final[ContextVar[CallerSpan | None]] = ContextVar("caller_span", default=None)
"""The span that this request's caller sent, or that of the request itself where requests are traced."""

_TRACEPARENT: Final = re.compile(
    r"(?!ff|00.{54})[\da-f]{2}-(?!0{32})([\da-f]{32})-(?!0{16})([\da-f]{16})-[\da-f]{2}(-.*)?"
)


def caller_span(traceparent: str) -> CallerSpan | None:
    """Return the span in a header of W3C's Trace Context; None if it is malformed."""
    found = _TRACEPARENT.fullmatch(traceparent)
    return CallerSpan(found[1], int(found[2], 16)) if found else None


def trace_of(run_id: str) -> tuple[str, str | None]:
    """Return the ids of a new run's trace and of the span there that its segments are in, if there is one."""
    if (caller := CALLER_SPAN.get()) is None:
        return trace_id_of(run_id), None
    caller.trace_id = caller.trace_id or trace_id_of(run_id)
    return caller.trace_id, f"{caller.span_id:016x}"


VERDICT_SCORE: Final = "verdict"
RUN_STATUS: Final = "run_status"
RUN_FAILURE: Final = "run_failure"
USER_FEEDBACK: Final = "user_feedback"
VERDICT_VALUES: Final = {"APPROVED": 1.0, "FIXED": 0.5, "REJECTED": 0.0}
"""The value of the score `verdict` for each status of a review."""


@dataclass(frozen=True, slots=True)
class TraceScore:
    """A score of a run's whole trace, as it is stored until it is sent. A text as `value` makes it a category.

    It replaces an earlier one of the same name, moment and source.
    """

    name: str
    value: float | str
    comment: str
    moment: datetime
    source: str = ""


def outcome_scores(status: str, code: str | None, reply: str) -> Sequence[tuple[str, str, str]]:
    """Return the scores of an ended run, each as name, value and comment: its status, and why it failed if it did."""
    scores = [(RUN_STATUS, status, "")]
    return scores if status == "succeeded" else [*scores, (RUN_FAILURE, code or status, reply)]


class SpanKind(StrEnum):
    """Kind of work of a span: Langfuse's observation types."""

    AGENT = "agent"
    CHAIN = "chain"
    TOOL = "tool"
    GENERATION = "generation"
    RETRIEVER = "retriever"
    EVALUATOR = "evaluator"


class Span(Protocol):
    """A unit of work that is being traced."""

    def set(self, describe: Describe) -> None:
        """Add attributes."""
        ...

    def fail(self, reason: str) -> None:
        """Mark the span as failed. An exception that leaves the span's block does this too."""
        ...


class Tracer(Protocol):
    """Opens spans. A span opened inside the block of another one is its child, also in asyncio tasks started there."""

    def request(self) -> Callable[[str, int, Attributes], None] | None:
        """Begin the span of a request; return what ends it with its name, status (0: no answer) and attributes.

        None if requests are not traced.
        """
        ...

    def segment(self, run: Run) -> AbstractContextManager[Span]:
        """Open the root span of one claim of a run, linked to the segment of the previous claim."""
        ...

    def span(self, name: str, kind: SpanKind, describe: Describe) -> AbstractContextManager[Span]:
        """Open a child of the current span. Outside of a segment nothing is traced."""
        ...

    def span_id(self) -> str:
        """Return the id, in hexadecimal, of the span that this task opened or ended last; empty outside of segments."""
        ...

    def score(self, name: str, value: float | str, comment: str, *, of_trace: bool = False) -> None:
        """Add a score to the current span, or to its whole trace. A text as `value` makes it a category.

        Langfuse doesn't get scores of whole traces from here, but from the rows of the run.
        """
        ...


class NoopSpan:
    """A span that records nothing."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None

    def set(self, describe: Describe) -> None:
        del describe

    def fail(self, reason: str) -> None:
        del reason


NOOP_SPAN: Final = NoopSpan()


class NoopTracer:
    """A tracer that records nothing."""

    __slots__ = ()

    def request(self) -> None:
        return None

    def segment(self, run: Run) -> NoopSpan:
        del run
        return NOOP_SPAN

    def span(self, name: str, kind: SpanKind, describe: Describe) -> NoopSpan:
        del name, kind, describe
        return NOOP_SPAN

    def span_id(self) -> str:
        return ""

    def score(self, name: str, value: float | str, comment: str, *, of_trace: bool = False) -> None:
        del name, value, comment, of_trace


NOOP_TRACER: Final = NoopTracer()
