"""Ids of traces and segments: made from the run, so that every process gives the same ones."""

import hashlib
from contextvars import ContextVar
from typing import Final, NamedTuple

from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator


class Root(NamedTuple):
    """The ids of a segment that is about to begin."""

    trace_id: int
    span_id: int


NEXT_ROOT: Final[ContextVar[Root | None]] = ContextVar("starling_next_root", default=None)


def segment_span_id(run_id: str, fence: int) -> int:
    """Return the id of the root span of a run's life under this fence."""
    return int.from_bytes(hashlib.sha256(f"{run_id}/{fence}".encode()).digest()[:8]) or 1


class RunIds(IdGenerator):
    """Gives a segment the ids that its run has, everything else random ones."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()

    def generate_trace_id(self) -> int:
        root = NEXT_ROOT.get()
        return root.trace_id if root else self._random.generate_trace_id()

    def generate_span_id(self) -> int:
        root = NEXT_ROOT.get()
        return root.span_id if root else self._random.generate_span_id()
