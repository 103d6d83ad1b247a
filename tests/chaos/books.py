"""What the callers of a chaos round learn: which runs were accepted, and what each reader was told."""

import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from starling.core.runs import RunStatus
from tests.chaos.orders import Order
from tests.chaos.promises import Promises
from tests.support.sse import Event


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that may not be."""

    invariant: str
    what: str
    run_id: str = ""


@dataclass(slots=True)
class Reading:
    """One reader of one run, over as many connections as it took."""

    run_id: str
    who: str
    events: list[Event] = field(default_factory=list[Event])
    connections: int = 0

    @property
    def last(self) -> int:
        return self.events[-1].id if self.events else 0

    @property
    def done(self) -> bool:
        return bool(self.events) and self.events[-1].type == "done"


@dataclass(slots=True)
class Accepted:
    """A run that a caller was given the id of."""

    run_id: str
    tenant: str
    thread_id: str
    order: Order


@dataclass(slots=True)
class Books:
    """All of it."""

    accepted: dict[str, Accepted] = field(default_factory=dict[str, Accepted])
    readings: list[Reading] = field(default_factory=list[Reading])
    statuses: dict[str, list[str]] = field(default_factory=dict[str, list[str]])  # as they were seen, without repeats
    decided: dict[str, str] = field(default_factory=dict[str, str])  # by people, of what calls are about
    violations: list[Violation] = field(default_factory=list[Violation])
    refused: dict[int, int] = field(default_factory=dict[int, int])  # responses that weren't 2xx, by status
    asked_across: int = 0  # reads with another tenant's key
    promises: Promises = field(default_factory=Promises)
    _ends: dict[str, float] = field(default_factory=dict[str, float])  # when they were seen first
    _sending: list[float] = field(default_factory=list[float])

    @contextmanager
    def sending(self, since: float) -> Generator[None]:
        """Hold a request whose caller doesn't know since then what became of it, and may send it again."""
        self._sending.append(since)
        try:
            yield
        finally:
            self._sending.remove(since)

    @property
    def sent_since(self) -> float:
        """The moment from which on a request was sent whose caller doesn't know what became of it; never: infinite."""
        return min(self._sending, default=math.inf)

    def accept(self, accepted: Accepted) -> None:
        """Enter a run; one that is known already has to be the same."""
        known = self.accepted.setdefault(accepted.run_id, accepted)
        if known.order.token != accepted.order.token:
            self.wrong(
                "one run per request", f"{known.order.token} and {accepted.order.token} are one run", known.run_id
            )

    def saw(self, run_id: str, status: str, asked: float) -> None:
        """Enter a status as somebody saw it who asked at that time (monotonic seconds).

        Who asked before the run's end was seen may be told late of how it stood by then.
        """
        if RunStatus(status).terminal:
            self._ends.setdefault(run_id, monotonic())
        elif asked < self._ends.get(run_id, -math.inf):
            return
        seen = self.statuses.setdefault(run_id, [])
        if not seen or seen[-1] != status:
            seen.append(status)

    def heard(self, reading: Reading, event: Event) -> None:
        """Enter an event of a stream; numbers have to follow each other over all cuts, but for gaps that say so."""
        first = event.data["from"] if event.type == "gap" else event.id
        if first != reading.last + 1 or event.id < first:
            self.wrong("no gap", f"{reading.who} was told {event.id} after {reading.last}", reading.run_id)
        if reading.done:
            self.wrong("done is last", f"{reading.who} was told {event.type} after done", reading.run_id)
        reading.events.append(event)

    def refuse(self, status: int) -> None:
        self.refused[status] = self.refused.get(status, 0) + 1

    def wrong(self, invariant: str, what: str, run_id: str = "") -> None:
        self.violations.append(Violation(invariant, what, run_id))

    def unread(self) -> list[Accepted]:
        """Return the runs whose end nobody was told yet."""
        ended = {reading.run_id for reading in self.readings if reading.done}
        return [run for run_id, run in self.accepted.items() if run_id not in ended]

    def of(self, run_id: str) -> Mapping[str, Any]:
        """Return what the books hold on a run, to be shown."""
        return {
            "run": self.accepted.get(run_id),
            "statuses": self.statuses.get(run_id, []),
            "readings": [reading for reading in self.readings if reading.run_id == run_id],
        }
