"""What every log line of a task, and of tasks begun by it, carries: the ids of its request or run."""

from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

from starling.core.runs import Run

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_context: ContextVar[Mapping[str, str]] = ContextVar("log_context", default=_NOTHING)


def log_context() -> Mapping[str, str]:
    """Return the names and values that log lines carry here."""
    return _context.get()


def add_to_log_context(**what: str) -> None:
    """Add `what` to every further line of this context, for example the id of the run."""
    _context.set({**_context.get(), **what})


@contextmanager
def bound_log_context(**what: str) -> Generator[None]:
    """Add `what` to every line logged in the block and in tasks begun there; the former context comes back after it."""
    token = _context.set({**_context.get(), **what})
    try:
        yield
    finally:
        _context.reset(token)


def run_log_context(run: Run) -> AbstractContextManager[None]:
    """Add the ids of the run to every line logged in the block and in tasks begun there."""
    return bound_log_context(run_id=run.id, tenant=run.tenant, trace_id=run.trace_id, correlation_id=run.correlation_id)
