"""The events and steps that a run leaves."""

from dataclasses import dataclass, field, replace
from typing import Protocol, Self

from starling.core.events.run_events import Plan, Route, Thinking, Warn
from starling.core.events.stream import AnyEvent
from starling.core.runs import Step


class RunSink(Protocol):
    """Collects events and steps of one run; `flush` makes durable what was collected so far."""

    def emit(self, event: AnyEvent) -> None: ...

    def step(self, step: Step) -> None: ...

    async def flush(self) -> None: ...


@dataclass(frozen=True, slots=True)
class RunRecorder:
    """Adds to the stream of events and to the record of steps of one run.

    `path` is that of the team whose work is recorded, empty for the main star.
    """

    sink: RunSink
    path: str = ""
    _warned: set[str] = field(default_factory=set[str])

    def inside(self, path: str) -> Self:
        """Return what records the work of a team: its plans have its path, and its text isn't for the user."""
        return replace(self, path=path)

    def emit(self, event: AnyEvent) -> None:
        """Add an event to the stream."""
        if self.path and isinstance(event, Thinking):
            return
        if self.path and isinstance(event, (Plan, Route, Warn)):
            event = event.model_copy(update={"path": self.path})
        self.sink.emit(event)

    def step(self, step: Step) -> None:
        """Add a step to the record."""
        self.sink.step(step)

    def warn(self, code: str, message: str, task_id: str | None = None) -> None:
        """Report, in the stream and in the record, a problem that the run survives."""
        self.emit(Warn(code=code, message=message, task_id=task_id))
        self.step(
            Step(type="warning", description=message, metadata={"code": code, "task_id": task_id, **self._where()})
        )

    def warn_once(self, code: str, message: str) -> None:
        """Report a problem of the whole run when it is first met."""
        if code not in self._warned:
            self._warned.add(code)
            self.warn(code, message)

    def _where(self) -> dict[str, str]:
        return {"path": self.path} if self.path else {}

    async def flush(self) -> None:
        """Make what was added so far durable. Raises LeaseLostError, DatabaseUnavailableError."""
        await self.sink.flush()
