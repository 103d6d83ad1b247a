"""History of a chaos experiment as its clients saw it: accepted runs, statuses and received events."""

import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from starling.core.runs import RunStatus
from tests.chaos.timing_guarantees import TimingGuarantees
from tests.chaos.workload import PlannedRequest
from tests.support.sse import Event


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken invariant."""

    invariant: str
    what: str
    run_id: str = ""


@dataclass(slots=True)
class Reading:
    """Events that one reader of one run received, over all its connections."""

    run_id: str
    who: str
    events: list[Event] = field(default_factory=list[Event])
    connections: int = 0
    resumed: int = 0  # connections that went on after an event of an earlier one

    @property
    def last(self) -> int:
        return self.events[-1].id if self.events else 0

    @property
    def done(self) -> bool:
        return bool(self.events) and self.events[-1].type == "done"


@dataclass(slots=True)
class Accepted:
    """A run whose id a client has received."""

    run_id: str
    tenant: str
    thread_id: str  # empty where the client isn't told
    planned: PlannedRequest
    text: str | None  # the input of its run; None where the platform words it
    path: str = "/v1/runs"  # of the route that accepted it


@dataclass(slots=True)
class ClientHistory:
    """Everything that clients have recorded."""

    accepted: dict[str, Accepted] = field(default_factory=dict[str, Accepted])
    readings: list[Reading] = field(default_factory=list[Reading])
    statuses: dict[str, list[str]] = field(default_factory=dict[str, list[str]])  # as observed, without repetitions
    decisions: dict[str, str] = field(default_factory=dict[str, str])  # of approvers, by call
    activations: dict[str, bool] = field(default_factory=dict[str, bool])  # whether approved, by run of the build
    violations: list[Violation] = field(default_factory=list[Violation])
    refused: dict[int, int] = field(default_factory=dict[int, int])  # responses that weren't 2xx, by status
    cross_tenant_requests: int = 0  # requests for runs of other tenants
    guarantees: TimingGuarantees = field(default_factory=TimingGuarantees)
    _ends: dict[str, float] = field(default_factory=dict[str, float])  # when each end was first observed
    _sending: list[float] = field(default_factory=list[float])

    @contextmanager
    def pending_request(self, since: float) -> Generator[None]:
        """Mark a request, sent at `since`, that its client may still retry."""
        self._sending.append(since)
        try:
            yield
        finally:
            self._sending.remove(since)

    @property
    def oldest_pending(self) -> float:
        """The time of the oldest request that may still be retried; infinite if there is none."""
        return min(self._sending, default=math.inf)

    def accept(self, accepted: Accepted) -> None:
        """Record an accepted run; a run id must always stand for the same request."""
        known = self.accepted.setdefault(accepted.run_id, accepted)
        if known.planned.token != accepted.planned.token:
            self.add_violation(
                "one run per request", f"{known.planned.token} and {accepted.planned.token} are one run", known.run_id
            )

    def record_status(self, run_id: str, status: str, asked: float) -> None:
        """Record a status from a request sent at `asked` (monotonic seconds).

        Responses to requests from before the observed end of the run may arrive late and are ignored.
        """
        if RunStatus(status).terminal:
            self._ends.setdefault(run_id, monotonic())
        elif asked < self._ends.get(run_id, -math.inf):
            return
        seen = self.statuses.setdefault(run_id, [])
        if not seen or seen[-1] != status:
            seen.append(status)

    def record_event(self, reading: Reading, event: Event) -> None:
        """Record an event; sequence numbers must be contiguous over all connections, except for `gap` events."""
        first = event.data["from"] if event.type == "gap" else event.id
        if first != reading.last + 1 or event.id < first:
            self.add_violation("no gap", f"{reading.who} received {event.id} after {reading.last}", reading.run_id)
        if reading.done:
            self.add_violation("done is last", f"{reading.who} received {event.type} after done", reading.run_id)
        reading.events.append(event)

    def count_refusal(self, status: int) -> None:
        self.refused[status] = self.refused.get(status, 0) + 1

    def add_violation(self, invariant: str, what: str, run_id: str = "") -> None:
        self.violations.append(Violation(invariant, what, run_id))

    def unfinished(self) -> list[Accepted]:
        """Return the runs whose `done` event no reader has received."""
        ended = {reading.run_id for reading in self.readings if reading.done}
        return [run for run_id, run in self.accepted.items() if run_id not in ended]

    def of(self, run_id: str) -> Mapping[str, Any]:
        """Return everything recorded about a run, for the report."""
        return {
            "run": self.accepted.get(run_id),
            "statuses": self.statuses.get(run_id, []),
            "readings": [reading for reading in self.readings if reading.run_id == run_id],
        }
