"""Requests to people, approvals of tool calls among them: each is asked once, and found by key by a later execution."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from langgraph.types import interrupt

from brain.run_sink import RunSink
from starling.core.clock import Clock
from starling.core.errors import SuspendedError
from starling.core.events.run_events import ApprovalRequired, BudgetRequired, Clarification, ExactCall, InDoubt
from starling.core.ids import new_id
from starling.core.json import JsonObject, canonical
from starling.core.run_document.document import InterruptKind
from starling.core.tool_calls import Observation
from starling.core.tools import DoneCall, ToolCall, ToolOutcome
from starling.infra.postgres.runs.interrupts import StoredInterrupt, insert_interrupts
from starling.infra.postgres.runs.writer import Clause

_COMPARED = {"name", "args"}  # fields that are equal in equal calls
_IN_EVENT = ("id", "reason", "message", "expiresAt", "responseSchema", "call", "code")
_EVENTS: Final[Mapping[InterruptKind, type[ApprovalRequired | InDoubt | Clarification | BudgetRequired]]] = {
    "approval": ApprovalRequired,
    "in_doubt": InDoubt,
    "clarification": Clarification,
    "budget": BudgetRequired,
}


@dataclass(frozen=True, slots=True)
class InterruptRequest:
    """A request that a person has to answer. `key` is unique in its run and the same in each of its executions.

    `path` is the place in the run that it comes from; an answer's payload has to fit `response_schema`. `code` says why
    it is asked, where that is something else than its kind.
    """

    kind: InterruptKind
    key: str
    path: str
    reason: str
    message: str
    response_schema: JsonObject
    call: ExactCall | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class InterruptOutcome:
    """The outcome of a request; `payload` is empty unless it was resolved, `by` unless a person answered."""

    state: Literal["resolved", "cancelled", "expired"]
    payload: JsonObject
    expires_at: datetime
    by: str = ""


class Interrupts:
    """All requests of one run. A new one becomes durable together with its event."""

    def __init__(self, writer: RunSink, clock: Clock, seconds: float, known: Sequence[StoredInterrupt] = ()) -> None:
        self._writer = writer
        self._clock = clock
        self._begun = clock.monotonic()
        self._seconds = seconds
        self._known = {item.key: item for item in known}
        self._unwritten: list[StoredInterrupt] = []

    def answer_to(self, request: InterruptRequest) -> InterruptOutcome:
        """Return the outcome. Raises SuspendedError while there is none; the first time, the request is emitted."""
        item = self._known.get(request.key) or self._ask(request)
        if item.state == "open":
            raise SuspendedError(item.id)
        return InterruptOutcome(item.state, item.payload or {}, item.expiresAt, item.answered_by or "")

    def was_asked(self, key: str) -> bool:
        """Whether a request was made already."""
        return key in self._known

    def was_asked_within(self, prefix: str) -> bool:
        """Whether a request was made whose key begins with `prefix`."""
        return any(key.startswith(prefix) for key in self._known)

    def refusal_of(self, request: InterruptRequest) -> InterruptOutcome | None:
        """Return the outcome of an earlier request for the same call in this run, if it has one and was not approved.

        That is one that was refused, withdrawn, or not answered in time: else each attempt would wait as long again.
        """
        call = request.call and request.call.model_dump(include=_COMPARED)
        for item in self._known.values():
            if item.state == "open" or item.kind != request.kind or (item.payload or {}).get("approved"):
                continue
            if item.call and {name: item.call[name] for name in _COMPARED} == call:
                return InterruptOutcome(item.state, item.payload or {}, item.expiresAt)
        return None

    def now(self) -> datetime:
        """Return the time by the database's clock: this machine's may be wrong by days."""
        passed = timedelta(seconds=self._clock.monotonic() - self._begun)
        return self._writer.run.claimed_at.astimezone(UTC) + passed

    def _ask(self, request: InterruptRequest) -> StoredInterrupt:
        same = {name: getattr(request, name) for name in ("key", "kind", "path", "reason", "message", "code")}
        item = StoredInterrupt(
            id=new_id(),
            run_id=self._writer.run.id,
            responseSchema=request.response_schema,
            call=request.call.model_dump() if request.call else None,
            state="open",
            createdAt=None,
            expiresAt=self.now() + timedelta(seconds=self._seconds),
            **same,
        )
        self._known[request.key] = item
        if not self._unwritten:
            self._writer.add(self._taken)
        self._unwritten.append(item)
        event = {name: value for name in _IN_EVENT if (value := getattr(item, name)) is not None}
        self._writer.emit(_EVENTS[request.kind].model_validate(event))
        return item

    def _taken(self) -> Clause:
        asked, self._unwritten = self._unwritten, []
        return insert_interrupts(self._writer.run.thread_id, self._writer.run.branch_id, asked)


@contextmanager
def interrupt_on_suspension() -> Generator[None]:
    """Turn SuspendedError into LangGraph's interrupt, which lets other nodes run on; its resume value is not used."""
    try:
        yield
    except SuspendedError as suspended:
        interrupt(list(suspended.interrupts))
        raise


NOT_APPROVED: Final = "not_approved"
REPEAT: Final = "repeat"  # how keys of approvals begin for which an earlier attempt is the reason
REPEAT_REFUSED: Final = "repeat_refused"
_DONE_CHARS = 600
_NOTE_CHARS = 2_000


def approval_schema(approved: str, note: str) -> JsonObject:
    """Return what an answer about an approval has to be; both are descriptions."""
    return {
        "type": "object",
        "properties": {
            "approved": {"type": "boolean", "description": approved},
            "note": {"type": "string", "maxLength": _NOTE_CHARS, "description": note},
        },
        "required": ["approved"],
        "additionalProperties": False,
    }


def approve(interrupts: Interrupts, call: ToolCall, reason: str, done: DoneCall | None = None) -> ToolOutcome | None:
    """Return None if a person approved exactly this call, else the outcome that says why it is not made.

    `done` is what an earlier attempt did, if that is why a person is asked: where the answer is no, the outcome says
    that this is what there is. A call that was not approved once, refused or not answered, is not asked for again in
    the same run. Raises SuspendedError while there is no answer.
    """
    message = f"{call.agent or 'An agent'} wants to call {call.shown_name} with exactly these arguments."
    if done is not None:
        made, wanted = (canonical(one.arguments)[:_DONE_CHARS] for one in (done, call))
        message = (
            f"{done.name} {made} was called already (call {done.id}): {done.result[:_DONE_CHARS]}\n"
            f"That attempt was rejected or failed: {done.reason[:_DONE_CHARS] or 'no reason was given.'}\n"
            f"{message} So {wanted} would be done as well: nothing takes back what was done."
        )
    request = InterruptRequest(
        kind="approval",
        key=f"{REPEAT if done else 'approval'}/{call.key}",
        path=call.path,
        reason=reason,
        message=message,
        response_schema=approval_schema("Whether the call may be made.", "Why; the agent reads it."),
        call=exact_call(call),
        code="repeat_after_rejection" if done else None,
    )
    refusal = None if interrupts.was_asked(request.key) else interrupts.refusal_of(request)
    outcome = refusal or interrupts.answer_to(request)
    if outcome.state == "resolved" and outcome.payload["approved"]:
        return None
    name, note = call.shown_name, str(outcome.payload.get("note", "")).strip()
    texts = {
        "resolved": f"was refused{f': {note}' if note else ''}{'' if note.endswith(('.', '!', '?')) else '.'}",
        "cancelled": "was not approved: the question was withdrawn.",
        "expired": "was not approved: there was no answer in time.",
    }
    text = f"The call of {name} {texts[outcome.state]} The tool was not called."
    if done is None:
        return ToolOutcome(Observation.NOT_SENT, text, code=NOT_APPROVED)
    text += f"\nDone before, and to go on with: {done.name} {canonical(done.arguments)[:_DONE_CHARS]}: {done.result}"
    return ToolOutcome(Observation.NOT_SENT, text, code=REPEAT_REFUSED)


def exact_call(call: ToolCall) -> ExactCall:
    """Return a call as events and people see it: the full name and all arguments."""
    return ExactCall(
        name=call.shown_name,
        args=dict(call.arguments),
        task_id=call.path.rpartition("/")[2].partition(".")[0],
        path=call.path,
        call_id=call.id,
    )
