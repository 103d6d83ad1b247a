"""What a run needs people for: asked once, found again by key in its next life."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, Protocol, assert_never

from langgraph.types import interrupt

from starling.core.clock import Clock
from starling.core.errors import SuspendedError
from starling.core.events import AnyEvent, ApprovalRequired, BudgetRequired, Clarification, ExactCall, InDoubt
from starling.core.ids import new_id
from starling.core.json import JsonObject
from starling.core.runs import Run
from starling.infra.postgres.runs.interrupts import InterruptKind, StoredInterrupt, asking
from starling.infra.postgres.runs.writer import Clause, Source

_SAME = {"name", "args"}  # what makes two calls the same


@dataclass(frozen=True, slots=True)
class InterruptRequest:
    """What somebody has to answer. `key` tells it from every other one of its run, and is the same in each life.

    `path` is where in the run it came up; an answer's payload has to fit `response_schema`.
    """

    kind: InterruptKind
    key: str
    path: str
    reason: str
    message: str
    response_schema: JsonObject
    call: ExactCall | None = None


@dataclass(frozen=True, slots=True)
class InterruptOutcome:
    """What came of a wish; `payload` is empty unless it was resolved. `by` is empty where nobody answered."""

    state: Literal["resolved", "cancelled", "expired"]
    payload: JsonObject
    expires_at: datetime
    by: str = ""


class InterruptSink(Protocol):
    """Writes interrupts of one run with its next flush, and their events."""

    @property
    def run(self) -> Run: ...

    def emit(self, event: AnyEvent) -> None: ...

    def add(self, source: Source) -> None: ...


class Interrupts:
    """Everything that one run has asked. What is asked anew becomes durable together with its event."""

    def __init__(
        self, writer: InterruptSink, clock: Clock, seconds: float, known: Sequence[StoredInterrupt] = ()
    ) -> None:
        self._writer = writer
        self._clock = clock
        self._begun = clock.monotonic()
        self._seconds = seconds
        self._known = {item.key: item for item in known}
        self._unwritten: list[StoredInterrupt] = []

    def answer_to(self, wish: InterruptRequest) -> InterruptOutcome:
        """Return the answer. Raises SuspendedError while there is none; then the wish is told, the first time."""
        item = self._known.get(wish.key) or self._ask(wish)
        if item.state == "open":
            raise SuspendedError(item.id)
        return InterruptOutcome(item.state, item.payload or {}, item.expires_at, item.answered_by or "")

    def knows(self, key: str) -> bool:
        """Whether that was asked already."""
        return key in self._known

    def refusal_of(self, wish: InterruptRequest) -> InterruptOutcome | None:
        """Return the answer of somebody who refused the same call elsewhere in the run."""
        call = wish.call and wish.call.model_dump(include=_SAME)
        for item in self._known.values():
            refused = item.state == "resolved" and item.kind == wish.kind and not (item.payload or {}).get("approved")
            if refused and item.call and {name: item.call[name] for name in _SAME} == call:
                return InterruptOutcome("resolved", item.payload or {}, item.expires_at)
        return None

    def _ask(self, wish: InterruptRequest) -> StoredInterrupt:
        item = StoredInterrupt(
            id=new_id(),
            run_id=self._writer.run.id,
            key=wish.key,
            kind=wish.kind,
            path=wish.path,
            reason=wish.reason,
            message=wish.message,
            response_schema=wish.response_schema,
            call=wish.call.model_dump() if wish.call else None,
            state="open",
            payload=None,
            created_at=None,
            expires_at=self._expiry(),
        )
        self._known[wish.key] = item
        if not self._unwritten:
            self._writer.add(self._taken)
        self._unwritten.append(item)
        self._writer.emit(_event(item, wish))
        return item

    def _taken(self) -> Clause:
        asked, self._unwritten = self._unwritten, []
        return asking(self._writer.run.thread_id, self._writer.run.branch_id, asked)

    def _expiry(self) -> datetime:
        """Return when what is asked now expires, by the database's clock: this machine's may be days away from it."""
        passed = self._clock.monotonic() - self._begun
        return self._writer.run.claimed_at.astimezone(UTC) + timedelta(seconds=passed + self._seconds)


@contextmanager
def interrupt_on_suspension() -> Generator[None]:
    """Turn SuspendedError into LangGraph's interrupt, whose resume value is never used: other nodes run on."""
    try:
        yield
    except SuspendedError as suspended:
        interrupt(list(suspended.interrupts))
        raise


def _event(item: StoredInterrupt, wish: InterruptRequest) -> AnyEvent:
    told = {
        "id": item.id,
        "reason": item.reason,
        "message": item.message,
        "responseSchema": item.response_schema,
        "expiresAt": item.expires_at,
        "call": wish.call,
    }
    match wish.kind:
        case "approval":
            return ApprovalRequired.model_validate(told)
        case "in_doubt":
            return InDoubt.model_validate(told)
        case "clarification":
            return Clarification.model_validate(_without_call(told))
        case "budget":
            return BudgetRequired.model_validate(_without_call(told))
        case _:
            assert_never(wish.kind)


def _without_call(told: Mapping[str, object]) -> Mapping[str, object]:
    return {name: value for name, value in told.items() if name != "call"}
