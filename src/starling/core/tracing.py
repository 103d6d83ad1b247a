"""Spans: what a run did and how long it took, for whoever looks at traces. Where nobody looks they cost nothing."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from enum import StrEnum
from types import TracebackType
from typing import Final, Protocol, Self

from starling.core.runs import Run

type Attributes = Mapping[str, object]
"""Texts, numbers, truth values and lists of texts by name; None is left out.

`input` and `output` are content: any JSON, shortened, and left out where content isn't traced. `tags` is a list of
texts by which traces are found.
"""

type Describe = Callable[[], Attributes]
"""Makes attributes; called only where somebody traces."""


class SpanKind(StrEnum):
    """What kind of work a span is; Langfuse's observation types."""

    SPAN = "span"
    AGENT = "agent"
    CHAIN = "chain"
    TOOL = "tool"
    GENERATION = "generation"
    RETRIEVER = "retriever"
    EVALUATOR = "evaluator"


class Span(Protocol):
    """Something that is being done."""

    def set(self, describe: Describe) -> None:
        """Add attributes."""
        ...

    def fail(self, reason: str) -> None:
        """Mark it as failed. An exception that leaves the span's block does so too."""
        ...


class Tracer(Protocol):
    """Opens spans. A span that is opened inside another one's block is its child, in tasks begun there too."""

    def segment(self, run: Run) -> AbstractContextManager[Span]:
        """Open the root span of one life of a run, linked to the life before it."""
        ...

    def span(self, name: str, kind: SpanKind, describe: Describe) -> AbstractContextManager[Span]:
        """Open a span below the current one. Outside of any segment nothing is traced."""
        ...

    def score(self, name: str, value: float, comment: str) -> None:
        """Give the current span a score."""
        ...


class NoSpan:
    """Nothing is being traced."""

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


NO_SPAN: Final = NoSpan()


class NoTracer:
    """Traces nothing."""

    __slots__ = ()

    def segment(self, run: Run) -> NoSpan:
        del run
        return NO_SPAN

    def span(self, name: str, kind: SpanKind, describe: Describe) -> NoSpan:
        del name, kind, describe
        return NO_SPAN

    def score(self, name: str, value: float, comment: str) -> None:
        del name, value, comment


NO_TRACER: Final = NoTracer()
