"""The port of what writes one run: its events, its steps and its rows."""

from typing import Protocol

from starling.core.events.stream import AnyEvent
from starling.core.runs import Run, Step
from starling.infra.postgres.runs.writer import ClauseSource, JournalEntry


class RunSink(Protocol):
    """Collects what one run writes; `flush` makes durable what was collected so far.

    `proven_seconds` is how long ago the last write began that proved that this process holds the run.
    """

    @property
    def run(self) -> Run: ...

    @property
    def proven_seconds(self) -> float: ...

    def emit(self, event: AnyEvent) -> None: ...

    def step(self, step: Step) -> None: ...

    def record(self, entry: JournalEntry) -> None: ...

    def add(self, source: ClauseSource) -> None: ...

    async def flush(self) -> None: ...
