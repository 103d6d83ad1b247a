"""A run's calls that may change something: durable before they leave, and before their results are used."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC
from typing import Any, Final, Protocol, cast

from brain.interrupts.approvals import approve, exact_call
from brain.interrupts.requests import InterruptOutcome, InterruptRequest, Interrupts
from starling.core.clock import Clock
from starling.core.json import JsonObject, digest
from starling.core.runs import Run
from starling.core.tool_calls import Effect
from starling.core.tools import CallRecord, Find, Finding, ToolCall, ToolOutcome
from starling.infra.postgres.runs.ledger import LedgerRow, storing
from starling.infra.postgres.runs.writer import Clause, Source

RESOLUTION: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "resolution": {"enum": ["done", "not_done", "give_up"]},
        "result": {"type": "string", "maxLength": 20_000},
    },
    "required": ["resolution"],
    "additionalProperties": False,
}

type _Place = tuple[str, int, int]


def call_key(call: ToolCall) -> str:
    """Return what tells a call from every other one, and is the same in each life of its run."""
    return digest([call.run_id, call.path, call.position, call.index, call.tool.full_name, call.arguments])


class LedgerSink(Protocol):
    """Writes rows of one run's ledger with its next flush."""

    @property
    def run(self) -> Run: ...

    @property
    def proven_seconds(self) -> float: ...

    def add(self, source: Source) -> None: ...

    async def flush(self) -> None: ...


class Ledger(CallRecord):
    """What one run did outside, in all its lives. It writes through the run's writer; `flush` makes it durable.

    For `sure_seconds` after a write of this life began, nobody else can have taken the run and gone on with it.
    """

    def __init__(
        self,
        writer: LedgerSink,
        interrupts: Interrupts,
        clock: Clock,
        sure_seconds: float,
        rows: Iterable[LedgerRow] = (),
    ) -> None:
        self._writer = writer
        self._sure_seconds = sure_seconds
        self._interrupts = interrupts
        self._clock = clock
        self._rows: dict[_Place, LedgerRow] = {(row.path, row.position, row.index): row for row in rows}
        self._unwritten: dict[str, LedgerRow] = {}

    @property
    def settled(self) -> int:
        """How many calls the run doesn't have to think of any more."""
        return sum(row.settled for row in self._rows.values())

    def in_doubt(self, path: str) -> bool:
        """Whether a call of a task left, and nobody has said yet what it came to."""
        return any(row.path == path and row.state != "intended" and not row.settled for row in self._rows.values())

    def intend(self, calls: Sequence[ToolCall]) -> None:
        """Write down, with the next batch, that these calls are going to be made."""
        for call in calls:
            effect = call.tool.effect.value
            place = (call.path, call.position, call.index)
            self._write(LedgerRow(call.key, *place, call.tool.full_name, effect, call.arguments, "intended"))

    def knows(self, call: ToolCall) -> bool:
        """Whether the call was intended, in this life or an earlier one."""
        return _place(call) in self._rows

    def outcome(self, call: ToolCall) -> ToolOutcome | None:
        """Return what a call came to, None while that isn't settled."""
        row = self._rows.get(_place(call))
        return _load(row) if row is not None and row.settled else None

    async def approve(self, call: ToolCall, reason: str) -> ToolOutcome | None:
        """See CallRecord."""
        return approve(self._interrupts, call, reason)

    async def dispatch(self, call: ToolCall, find: Find) -> ToolOutcome | None:
        """See CallRecord. An idempotent call that left in an earlier life leaves again, under the same key."""
        row = self._rows[_place(call)]
        if row.settled:
            return _load(row)
        if row.state == "intended":
            return await self._leave(row)
        if call.tool.effect is Effect.IDEMPOTENT:
            return None
        lost = _lost(call)
        said = await self._said(call, row, lost, find)
        return await self._leave(row) if said.done is False else self._resolved(row, lost, said)

    async def leave(self, call: ToolCall) -> None:
        """See CallRecord. A process that was stopped for a while on the way here proves its lease by a write."""
        while self._writer.proven_seconds > self._sure_seconds:
            self._write(self._rows[_place(call)])
            await self._writer.flush()

    async def settle(self, call: ToolCall, outcome: ToolOutcome, find: Find) -> ToolOutcome:
        """See CallRecord. What was cut off is in doubt, unless it may simply be called again."""
        row = self._rows[_place(call)]
        if not outcome.unknown:
            return self._settled(row, outcome)
        if call.tool.effect is Effect.IDEMPOTENT:
            return self._settled(row, replace(outcome, unknown=False))
        said = await self._said(call, row, outcome, find)
        if said.done is False:
            text = f"{outcome.text} {said.text}".rstrip()
            return self._settled(row, replace(outcome, text=text, unknown=False), said.by)
        return self._resolved(row, outcome, said)

    async def conclude(self, call: ToolCall, outcome: ToolOutcome) -> ToolOutcome:
        """Settle a call that was stopped before it reached `dispatch`, and return what the run goes on with.

        What stopped it now says nothing of an earlier life in which it had left. Raises SuspendedError.
        """
        row = self._rows[_place(call)]
        if row.settled:
            return outcome
        if row.state == "intended":
            outcome = replace(outcome, unknown=False)  # it never left
        elif not outcome.unknown:
            text = f"{outcome.text} It had been called before that, and whether that was done is unknown."
            outcome = replace(outcome, text=text, unknown=True)
        return await self.settle(call, outcome, _nobody)

    async def _leave(self, row: LedgerRow) -> None:
        fence, now = self._writer.run.fence, self._clock.now()
        self._write(replace(row, state="dispatched", outcome=None, fence=fence, dispatched_at=now))
        await self._writer.flush()

    async def _said(self, call: ToolCall, row: LedgerRow, lost: ToolOutcome, find: Find) -> "_Said":
        """Return what a tool or a person says of a call whose answer was lost.

        Raises SuspendedError until somebody has said it.
        """
        if row.state == "dispatched":
            if (found := await find()) is not None:
                return _as_tool(found)
            self._write(replace(row, state="in_doubt", outcome=asdict(lost)))
        return _as_person(self._interrupts.answer_to(_wish(call, row, lost)))

    def _resolved(self, row: LedgerRow, lost: ToolOutcome, said: "_Said") -> ToolOutcome:
        """Settle a call that was done, or one that was given up: that stays in doubt."""
        if said.done:
            return self._settled(row, ToolOutcome("succeeded", said.text), said.by)
        self._write(replace(row, state="in_doubt", outcome=asdict(lost), settled=True, settled_by=said.by))
        return lost

    def _settled(self, row: LedgerRow, outcome: ToolOutcome, by: str | None = None) -> ToolOutcome:
        self._write(replace(row, state=outcome.status, outcome=asdict(outcome), settled=True, settled_by=by))
        return outcome

    def _write(self, row: LedgerRow) -> None:
        self._rows[row.path, row.position, row.index] = row
        if not self._unwritten:
            self._writer.add(self._taken)
        self._unwritten[row.key] = row

    def _taken(self) -> Clause:
        rows, self._unwritten = self._unwritten, {}
        return storing(rows.values(), self._writer.run.correlation_id)


@dataclass(frozen=True, slots=True)
class _Said:
    """Whether a call was done; None: it is given up."""

    done: bool | None
    text: str
    by: str


def _as_tool(found: Finding) -> _Said:
    text = f"{found.result}\n[Its own answer was lost; {found.by} says this.]".lstrip()
    return _Said(found.done, text if found.done else f"{found.by} says that it was not done.", found.by)


def _as_person(answered: InterruptOutcome) -> _Said:
    resolution = answered.payload.get("resolution") if answered.state == "resolved" else "give_up"
    if resolution == "give_up":
        return _Said(None, "", answered.by or answered.state)
    if resolution == "not_done":
        return _Said(False, "A person says that it was not done.", answered.by)
    return _Said(
        True,
        f"{answered.payload.get('result', '')}\n[Its own answer was lost; a person says this.]".lstrip(),
        answered.by,
    )


async def _nobody() -> None:
    return None


def _place(call: ToolCall) -> _Place:
    return call.path, call.position, call.index


def _load(row: LedgerRow) -> ToolOutcome:
    return ToolOutcome(**cast("dict[str, Any]", row.outcome))


def _lost(call: ToolCall) -> ToolOutcome:
    text = (
        f"The process that waited for {call.tool.full_name} ended before it answered."
        " Whether it changed anything is unknown."
    )
    return ToolOutcome("failed", text, code="interrupted", unknown=True)


def _wish(call: ToolCall, row: LedgerRow, lost: ToolOutcome) -> InterruptRequest:
    """Ask once for each time that the call left."""
    when = f"at {row.dispatched_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC, " if row.dispatched_at else ""
    message = (
        f"{call.tool.full_name} was called {when}in life {row.fence} of the run, with the key {row.key}. {lost.text}"
        " Say `done`, with its result if you know it; `not_done`, and it is called with the same key;"
        " or `give_up`, and the task fails."
    )
    reason = f"Nobody knows whether {call.tool.full_name} was done."
    return InterruptRequest(
        "in_doubt", f"in_doubt/{row.key}/{row.fence}", call.path, reason, message, RESOLUTION, exact_call(call)
    )
