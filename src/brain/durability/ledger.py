"""A run's calls that may change something: durable before they leave, and before their results are used."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from brain.durability.attempt_outcomes import AttemptOutcomes
from brain.durability.changes import changes_of, done_calls, is_success, uncertain_calls
from brain.durability.in_doubt import LEASE_LOST, question_about
from brain.interrupts.requests import REPEAT, Interrupts, approve
from brain.run_sink import RunSink
from brain.state import UncertainCall
from starling.core.clock import Clock
from starling.core.errors import SuspendedError
from starling.core.events.run_events import Change
from starling.core.ids import has_ended
from starling.core.json import JsonObject, comparable, digest
from starling.core.task_paths import is_within, without_numbers
from starling.core.tool_calls import (
    UNCERTAIN,
    CallState,
    Effect,
    Observation,
    after_restart,
    needs_a_person,
    next_state,
    refuses_repeat,
)
from starling.core.tools import Attempt, CallFinding, CallRecord, DoneCall, Find, ToolCall, ToolOutcome
from starling.infra.postgres.runs.ledger import LedgerRow, storing
from starling.infra.postgres.runs.writer import Clause

NOT_REPEATED: Final = "not_repeated"
_IN_USE: Final = frozenset({CallState.INTENDED, CallState.DISPATCHED, CallState.SUCCEEDED})

type _Place = tuple[str, int, int]


def call_key(call: ToolCall) -> str:
    """Return the key of a call's row: no other call has it, and it stays the same when the run is resumed."""
    return digest([call.run_id, call.path, call.position, call.index, call.tool.full_name, call.arguments])


class Ledger(CallRecord):
    """All calls of one run that may change something. It writes through the run's writer; `flush` makes it durable.

    What an observation means is decided in `starling.core.tool_calls`. For `sure_seconds` after the last write began,
    no other process can have taken the run over. `attempts` says which attempts were rejected. `originals` are the
    calls that the run which this one was forked from sent, and those before it. While the process is `draining`, no
    further call leaves.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a run knows of its calls
        self,
        writer: RunSink,
        interrupts: Interrupts,
        clock: Clock,
        sure_seconds: float,
        rows: Iterable[LedgerRow] = (),
        attempts: AttemptOutcomes | None = None,
        originals: Iterable[LedgerRow] = (),
        draining: Callable[[], bool] = bool,
    ) -> None:
        self.draining = draining
        self.attempts = attempts or AttemptOutcomes()
        self._writer = writer
        self._sure_seconds = sure_seconds
        self._interrupts = interrupts
        self._clock = clock
        self._rows: dict[_Place, LedgerRow] = {}
        self._equal: defaultdict[tuple[str, str], list[_Place]] = defaultdict(list)
        self._unwritten: dict[str, LedgerRow] = {}
        self._left: set[_Place] = set()  # recorded by this process with `leave`
        self._originals: defaultdict[tuple[str, str], list[LedgerRow]] = defaultdict(list)
        for row in originals:
            self._originals[row.tool, comparable(row.arguments)].append(row)
        for row in rows:
            self._keep(row)

    @property
    def settled(self) -> int:
        """How many calls have the outcome that the run goes on with."""
        return sum(row.settled for row in self._rows.values())

    def state(self, call: ToolCall) -> CallState:
        """Return where a call stands that was intended."""
        return self._rows[_place(call)].state

    def uncertain(self, path: str) -> list[UncertainCall]:
        """Return the calls of a task that may have been done and have no result to show for it."""
        return uncertain_calls(self._rows.values(), path)

    def has_calls(self, path: str) -> bool:
        """Whether a task, or a member of its team, asked for calls that may change something."""
        return any(is_within(row.path, path) for row in self._rows.values())

    def with_keys(self, call: ToolCall) -> ToolCall:
        """Return the call with its key and its idempotency key.

        Of an idempotent tool, the equal calls of one attempt have different keys, and those of the next attempt have
        the same ones again. A call takes the key of an equal one in doubt that no other one repeats, of any task.
        """
        key, call = call_key(call), replace(call, fence=self._writer.run.fence)
        if call.tool.effect is not Effect.IDEMPOTENT:
            return replace(call, key=key, idempotency_key=key)
        if (own := self._rows.get(_place(call))) is not None:
            return replace(call, key=key, idempotency_key=own.sent_key)
        equal = list(self._equal_rows(call.tool.full_name, call.arguments))
        in_doubt = {row.sent_key for row in equal if self._is_in_doubt(row)}
        in_use = {row.sent_key for row in equal if row.state in _IN_USE and not self._is_in_doubt(row)}
        if shared := sorted(in_doubt - in_use):
            return replace(call, key=key, idempotency_key=shared[0])
        task = without_numbers(call.path)  # another attempt at it repeats what the original sent, not one call more
        used = {row.sent_key for row in equal if _is_of_attempt(row, call) or without_numbers(row.path) != task}
        for original in self._originals[call.tool.full_name, comparable(call.arguments)]:
            if original.sent_key not in used:
                return replace(call, key=key, idempotency_key=original.sent_key)
        ordinal = sum(_is_of_attempt(row, call) for row in equal)  # the first one has the key of earlier versions
        seen = [call.run_id, task, call.tool.full_name, call.arguments]
        return replace(call, key=key, idempotency_key=digest([*seen, ordinal] if ordinal else seen))

    def intend(self, calls: Sequence[ToolCall]) -> None:
        """Record, with the next batch, that these calls are going to be made."""
        for call in calls:
            effect = call.tool.effect
            state = next_state(CallState.ANNOUNCED, Observation.INTENDED, effect)
            key = call.idempotency_key if call.idempotency_key != call.key else None
            row = LedgerRow(call.key, *_place(call), call.tool.full_name, effect, call.arguments, state)
            known = {"declared": call.tool.declared, "reads": call.tool.repeat == "made"}
            self._write(replace(row, idempotency_key=key, attempt=call.attempt.number, **known))

    def knows(self, call: ToolCall) -> bool:
        """Whether the call was intended, by this process or an earlier one."""
        return _place(call) in self._rows

    def outcome(self, call: ToolCall) -> ToolOutcome | None:
        """Return the outcome of a call, None while it isn't settled."""
        row = self._rows.get(_place(call))
        return _stored(row) if row is not None and row.settled else None

    def changes(self) -> list[Change]:
        """Return the calls that changed something, or may have, in the order in which they were intended."""
        return changes_of(self._rows.values(), self.attempts)

    async def approve(self, call: ToolCall, reason: str, done: DoneCall | None = None) -> ToolOutcome | None:
        """See CallRecord."""
        return approve(self._interrupts, call, reason, done)

    def reuse(self, call: ToolCall, note: str) -> ToolOutcome | None:
        """See CallRecord. The row names the call that it used, so that a resumed run makes the same choice."""
        row = self._rows[_place(call)]
        if not self.is_intended(call):
            return None
        equal = list(self._equal_rows(call.tool.full_name, call.arguments))
        used = {other.reused_key for other in equal if _is_of_attempt(other, call)}
        done = (
            other for other in equal if is_success(other) and other.key not in used and not _is_of_attempt(other, call)
        )
        found = next((other for other in done if self.attempts.status(other.path, other.attempt) != "open"), None)
        if found is None:
            return None
        outcome = _stored(found)
        outcome = replace(outcome, observation=Observation.REUSED, text=f"{outcome.text}\n{note}".lstrip(), events=())
        state = next_state(row.state, outcome.observation, row.effect)
        return self._settle(replace(row, state=state, reused_key=found.key), outcome)

    def done_before(self, call: ToolCall) -> DoneCall | None:
        """See CallRecord."""
        row, was_asked = self._rows[_place(call)], self._interrupts.was_asked
        is_new = self.is_intended(call) and not was_asked(f"approval/{call.key}")
        if not was_asked(f"{REPEAT}/{call.key}") and (not is_new or self._blocking(row)):  # which keeps it from leaving
            return None
        rows = [other for other in self._rows.values() if other.tool == row.tool]
        done = done_calls(rows, self.attempts, call.path, call.attempt, also=CallState.UNUSABLE)
        return done[-1] if done else None

    def sent_by_original(self, call: ToolCall) -> str:
        """See CallRecord."""
        sent = self._originals[call.tool.full_name, comparable(call.arguments)]
        return f"call {sent[-1].call_id}" if sent else ""

    def done(self, path: str, attempt: Attempt) -> list[DoneCall]:
        """Return what an attempt at the task of `path` would repeat: see `done_calls`."""
        return done_calls(self._rows.values(), self.attempts, path, attempt)

    async def dispatch(self, call: ToolCall, find: Find) -> ToolOutcome | None:
        """See CallRecord. An idempotent call that an earlier process sent is sent again, under the same key."""
        row = self._rows[_place(call)]
        if row.settled:
            return _stored(row)
        if row.state is CallState.INTENDED:
            earlier = self._blocking(row)
            if earlier is None:
                return None
            refusal = _refusal(row, earlier)
            return self._settle(self._observe(row, refusal), refusal)
        if row.state is CallState.DISPATCHED:
            if after_restart(row.effect) is Observation.SENT:
                return None
            name = call.tool.full_name
            ended = self._has_ended(row)
            how = (
                f"The process that waited for {name} ended before it answered."
                if ended
                else f"The process that waits for {name} lost this run, but may not have ended: the call may go on."
            )
            text, code = f"{how} Whether it changed anything is unknown.", "interrupted" if ended else LEASE_LOST
            row = self._observe(row, ToolOutcome(Observation.INTERRUPTED, text, code=code))
        finding = await self._finding(call, row, find)
        if finding is not None and finding.observation is Observation.FOUND_NOT_DONE:
            state = next_state(row.state, finding.observation, row.effect)
            self._write(replace(row, state=state, outcome=None))
            self._left.discard(_place(call))  # what left was not done, so that nothing has left yet
            return None
        return self._resolve(row, finding)

    async def leave(self, call: ToolCall) -> None:
        """See CallRecord. A process that was stopped for a while during the write proves its lease by another one."""
        row = self._rows[_place(call)]
        if row.state is CallState.INTENDED:
            if self.draining():
                raise SuspendedError
            state = next_state(row.state, Observation.SENT, row.effect)
            fence, now = self._writer.run.fence, self._clock.now()
            row = self._write(
                replace(row, state=state, outcome=None, fence=fence, dispatched_at=now, seconds=call.seconds)
            )
            await self._writer.flush()
        self._left.add(_place(call))
        while self._writer.proven_seconds > self._sure_seconds:
            self._write(row)
            await self._writer.flush()

    def is_intended(self, call: ToolCall) -> bool:
        """See CallRecord."""
        row = self._rows[_place(call)]
        return row.state is CallState.INTENDED and not row.settled

    def has_left(self, call: ToolCall) -> bool:
        """See CallRecord."""
        return _place(call) in self._left

    async def settle(self, call: ToolCall, outcome: ToolOutcome, find: Find) -> ToolOutcome:
        """See CallRecord. A call in doubt that a tool or a person found not done has failed: its agent decides."""
        row = self._rows[_place(call)]
        if row.state not in UNCERTAIN:  # else an earlier process observed it
            row = self._observe(row, outcome)
        if row.state not in UNCERTAIN:
            return self._settle(row, _stored(row))
        return self._resolve(row, await self._finding(call, row, find))

    async def conclude(self, call: ToolCall, outcome: ToolOutcome) -> ToolOutcome:
        """Settle a call that was stopped before it reached `dispatch`; return the outcome that the run goes on with.

        What stopped it now does not prove that an earlier process had not sent it. Raises SuspendedError.
        """
        return outcome if self._rows[_place(call)].settled else await self.settle(call, outcome, _no_tool)

    def _observe(self, row: LedgerRow, outcome: ToolOutcome) -> LedgerRow:
        """Record the state that an observation leads to."""
        if outcome.observation in (Observation.NOT_SENT, Observation.PLATFORM_ERROR) and self._sent_earlier(row):
            ended = self._has_ended(row)
            by = "" if ended else " by a process that lost this run, but may not have ended: that call may go on"
            text = f"{outcome.text} It had been called before that{by}, and whether that was done is unknown."
            code = outcome.code if ended else LEASE_LOST
            outcome = replace(outcome, observation=Observation.NOT_SENT_AGAIN, text=text, code=code)
        state = next_state(row.state, outcome.observation, row.effect)
        return self._write(replace(row, state=state, outcome=outcome.to_json()))

    async def _finding(self, call: ToolCall, row: LedgerRow, find: Find) -> CallFinding | None:
        """Return the finding of a tool about an uncertain call, or of a person where the run has to wait for one.

        Raises SuspendedError until a person has answered. A tool is asked once for each time that the call left.
        """
        if not needs_a_person(row.state, row.effect):
            return await find()
        request = question_about(call, row, _stored(row), self._interrupts.now())
        if not self._interrupts.was_asked(request.key) and (found := await find()) is not None:
            return found
        answer = self._interrupts.answer_to(request)
        resolution = answer.payload.get("resolution") if answer.state == "resolved" else "give_up"
        if resolution == "done":
            result = str(answer.payload.get("result", ""))
            return CallFinding(Observation.FOUND_DONE, result, answer.by, by_person=True)
        found = Observation.FOUND_NOT_DONE if resolution == "not_done" else Observation.GIVEN_UP
        return CallFinding(found, "", answer.by or answer.state, by_person=True)

    def _resolve(self, row: LedgerRow, finding: CallFinding | None) -> ToolOutcome:
        """Settle an uncertain call by what was found out about it. Without a finding it stays as it is."""
        outcome = _stored(row)
        if finding is None:
            return self._settle(row, outcome)
        state = next_state(row.state, finding.observation, row.effect)
        who = "a person" if finding.by_person else finding.by
        match finding.observation:
            case Observation.FOUND_DONE:
                lost = "was lost" if row.state is CallState.IN_DOUBT else "can't be used"
                text = f"{finding.result}\n[Its own answer {lost}; {who} says this.]".lstrip()
                outcome = ToolOutcome(finding.observation, text)
            case Observation.FOUND_NOT_DONE:
                state = next_state(state, Observation.NOT_SENT, row.effect)
                text = f"{outcome.text} According to {who}, it was not done."
                outcome = replace(outcome, observation=Observation.NOT_SENT, text=text)
            case Observation.GIVEN_UP:
                pass
        return self._settle(replace(row, state=state), outcome, finding.by)

    def _settle(self, row: LedgerRow, outcome: ToolOutcome, by: str | None = None) -> ToolOutcome:
        self._write(replace(row, outcome=outcome.to_json(), settled=True, settled_by=by))
        return outcome

    def _blocking(self, row: LedgerRow) -> LedgerRow | None:
        """Return an equal call of the run that keeps this one from being made, None where there is none."""
        for other in self._equal_rows(row.tool, row.arguments):
            same_key, found = other.sent_key == row.sent_key, other.settled_by is not None
            state = other.state
            if self._sent_earlier(other):  # what an earlier process left dispatched counts as interrupted
                state = next_state(state, after_restart(other.effect), other.effect)
            refused = refuses_repeat(state, row.effect, found=found, same_key=same_key)
            if other.key != row.key and refused and not self._repeated(other):
                return other
        return None

    def _is_in_doubt(self, row: LedgerRow) -> bool:
        return row.state is CallState.IN_DOUBT or self._sent_earlier(row)

    def _has_ended(self, row: LedgerRow) -> bool:
        """Whether the process that sent a call is known to wait for it no longer."""
        run = self._writer.run
        return row.fence == run.fence - 1 and (not run.lost_worker or has_ended(run.lost_worker))

    def _sent_earlier(self, row: LedgerRow) -> bool:
        return row.state is CallState.DISPATCHED and row.fence != self._writer.run.fence

    def _repeated(self, row: LedgerRow) -> bool:
        """Whether a repeat under the same idempotency key succeeded: then there is no doubt about this one either."""
        return any(
            other.state is CallState.SUCCEEDED and other.sent_key == row.sent_key
            for other in self._equal_rows(row.tool, row.arguments)
            if other.key != row.key
        )

    def _equal_rows(self, tool: str, arguments: JsonObject) -> Iterator[LedgerRow]:
        return (self._rows[place] for place in self._equal[tool, comparable(arguments)])

    def _keep(self, row: LedgerRow) -> None:
        place = row.path, row.position, row.index
        if place not in self._rows:
            self._equal[row.tool, comparable(row.arguments)].append(place)
        self._rows[place] = row

    def _write(self, row: LedgerRow) -> LedgerRow:
        self._keep(row)
        if not self._unwritten:
            self._writer.add(self._take_unwritten)
        self._unwritten[row.key] = row
        return row

    def _take_unwritten(self) -> Clause:
        rows, self._unwritten = self._unwritten, {}
        return storing(rows.values(), self._writer.run.correlation_id)


async def _no_tool() -> None:
    return None


def _is_of_attempt(row: LedgerRow, call: ToolCall) -> bool:
    return (row.path, row.attempt) == (call.path, call.attempt.number)


def _place(call: ToolCall) -> _Place:
    return call.path, call.position, call.index


def _stored(row: LedgerRow) -> ToolOutcome:
    return ToolOutcome.from_json(row.outcome or {"status": "failed", "unknown": True, "text": ""})


def _refusal(row: LedgerRow, earlier: LedgerRow) -> ToolOutcome:
    """Return the outcome of a call that would repeat one which may have been done."""
    known = (
        f"{earlier.settled_by} says that it was done"
        if earlier.state is CallState.SUCCEEDED
        else "it may have been done, and no tool or person has found that it was not"
    )
    text = (
        f"{row.tool} was called with the same arguments before in this run (call {earlier.call_id}): {known}."
        " So it isn't called again in this run. The tool was not called."
    )
    return ToolOutcome(Observation.NOT_SENT, text, code=NOT_REPEATED)
