"""The states of a run as a function of its document, and the row that they are stored in."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from starling.core.conversation.states import (
    AgentCallState,
    AgentResultState,
    AssistantMessageState,
    BaseState,
    Envelope,
    FinishedState,
    ToolCallState,
    ToolResultState,
    UserMessageState,
    UserResponseState,
    WaitingState,
    content_of,
    envelope,
    fields_of,
    state_of,
)
from starling.core.conversation.transitions import timed_out
from starling.core.json import canonical
from starling.core.run_document.document import Call, ReviewVerdict, RunDocument, RunInterrupt, TaskRecord

STATE_CHARS: Final = 600
"""How much of a task, of arguments and of a result a state has."""

SUPERVISOR: Final = "supervisor"
"""The agent of the states that belong to the main star itself."""

TURN: Final = "Turn"
"""The type of a row with the states of a run; else a row is of the kind of its one state."""

_VERSION: Final = 1
_LAST: Final = 2**63  # the place of what is still open
_WAITS_FOR: Final[Mapping[str, Any]] = {"approval": "tool", "in_doubt": "tool"}  # else for the user


@dataclass(frozen=True, slots=True)
class PlacedState:
    """A state of a run: seconds since the epoch, its agent, and the index of the state that it is a part of."""

    state: BaseState
    ts: float
    agent: str = SUPERVISOR
    parent: int | None = None


@dataclass(frozen=True, slots=True)
class _Entry:
    """A state at the number of its event; `call` names a task whose call it is, `inside` the one that it is part of."""

    seq: int
    state: BaseState
    at: datetime
    agent: str
    inside: str = ""
    call: str = ""


def states_of(document: RunDocument) -> list[PlacedState]:
    """Return the states of a run in the order of its events; those of one that goes on end with what is open.

    Positions are final once the run has ended.
    """
    entries = sorted(_Entries(document).all(), key=lambda entry: entry.seq)
    calls = {entry.call: index for index, entry in enumerate(entries) if entry.call}
    return [
        PlacedState(entry.state, round(entry.at.timestamp(), 3), entry.agent, calls.get(entry.inside))
        for entry in entries
    ]


def pack(states: Sequence[PlacedState]) -> Envelope:
    """Put the states of a run, at least one, into one envelope."""
    content = [
        {
            "v": one.state.__version__,
            "t": type(one.state).__name__,
            "ts": one.ts,
            "data": fields_of(one.state),
            "agent": one.agent,
            "parent": one.parent,
        }
        for one in states
    ]
    return envelope(_VERSION, TURN, states[-1].ts, content, len(states))


def unpack(stored: Envelope) -> list[PlacedState]:
    """Take the states out of an envelope, also out of one of a single state. Raises as `decode`."""
    if stored.t != TURN or stored.v != _VERSION:
        return [PlacedState(state_of(stored.t, stored.v, content_of(stored)), stored.ts, "")]
    return [
        PlacedState(state_of(item["t"], item["v"], item["data"]), item["ts"], item["agent"], item["parent"])
        for item in content_of(stored)
    ]


_SCORES: Final[Mapping[str, float]] = {"APPROVED": 1.0, "FIXED": 0.8, "REJECTED": 0.0}


def scored(placed: PlacedState, feedback: float | None) -> PlacedState:
    """Return a result with its reward or score: what users say of its run, else its own, else that of its verdict.

    What failed has 0.
    """
    state = placed.state
    if not isinstance(state, (ToolResultState, AgentResultState)):
        return placed
    own = state.reward if isinstance(state, ToolResultState) else state.score
    status, verdict = state.result.get("status"), state.result.get("verdict")
    known = 0.0 if status in ("failed", "expired") else _SCORES.get(str(verdict), 1.0 if status == "approved" else None)
    score = next((value for value in (feedback, own, known) if value is not None), None)
    of = {"reward": score} if isinstance(state, ToolResultState) else {"score": score}
    return replace(placed, state=replace(state, **of)) if score is not None else placed


class _Entries:
    """The states of a document, each with the number of its event."""

    def __init__(self, document: RunDocument) -> None:
        self._document = document
        self._tasks = {task.path: task for task in document.tasks if task.attempts or task.seq}
        self._asked = {_called(item) for item in document.interrupts if item.state == "open"}

    def all(self) -> Iterator[_Entry]:
        document = self._document
        yield _Entry(-1, UserMessageState(text=document.input), document.created_at, SUPERVISOR)
        for item in document.interrupts:
            yield from self._wait(item)
        for task in self._tasks.values():
            yield from self._task(task)
        if document.result is not None:
            ended = document.ended_at or document.created_at
            reply = AssistantMessageState(content=document.result["reply"])
            yield _Entry(_LAST, reply, ended, SUPERVISOR)
            yield _Entry(_LAST, FinishedState(), ended, SUPERVISOR)

    def _wait(self, item: RunInterrupt) -> Iterator[_Entry]:
        """Yield what was asked, and what was answered: an approval is answered by the result of its call."""
        inside = self._enclosing(item.path)
        agent, at = self._tasks[inside].agent if inside else SUPERVISOR, item.createdAt or self._document.created_at
        if item.kind == "clarification":
            yield _Entry(item.seq, AssistantMessageState(content=item.message), at, agent, inside)
        kind = _WAITS_FOR.get(item.kind, "user_input")
        wait = WaitingState(kind=kind, deadline=item.expiresAt.timestamp(), correlation_id=_called(item))
        yield _Entry(item.seq, wait, at, agent, inside)
        if item.kind == "clarification" and item.answer:
            answered = item.answered_at or at
            yield _Entry(item.seq, UserResponseState(text=item.answer), answered, agent, inside)
        elif item.state == "expired" and kind == "user_input":
            late = timed_out(wait, item.expiresAt.timestamp())
            yield _Entry(item.seq, late, item.expiresAt, agent, inside)

    def _task(self, task: TaskRecord) -> Iterator[_Entry]:
        inside = self._enclosing(task.path.rpartition("/")[0])
        seq, begun = task.seq, task.ended_at or self._document.created_at
        if task.attempts:
            seq, begun = task.attempts[0].seq, task.attempts[0].at
        called = AgentCallState(agent_id=task.agent, message=task.text[:STATE_CHARS], correlation_id=task.path)
        yield _Entry(seq, called, begun, task.agent, inside, task.path)
        for attempt in task.attempts:
            for call in attempt.calls:
                yield from self._call(call, task, attempt.verdict)
        if task.seq:
            result = {"status": task.status, "content": task.summary[:STATE_CHARS]}
            result |= _verdict(task.attempts[-1].verdict if task.attempts else None)
            ended = AgentResultState(correlation_id=task.path, result=result)
            yield _Entry(task.seq, ended, task.ended_at or begun, task.agent, inside)
        elif self._document.result is None:
            yield _Entry(_LAST, WaitingState(kind="agent", correlation_id=task.path), begun, task.agent, inside)

    def _call(self, call: Call, task: TaskRecord, verdict: ReviewVerdict | None) -> Iterator[_Entry]:
        begun = ToolCallState(id=call.id, function_name=call.name, arguments=_arguments(call.args))
        yield _Entry(call.seq, begun, call.at, task.agent, task.path)
        if call.status:
            result = {"status": call.status, "content": call.result[:STATE_CHARS]}
            result |= {"artifact": call.artifact} if call.artifact else {}
            result |= _verdict(verdict)
            done = ToolResultState(tool_call_id=call.id, tool_name=call.name, result=result)
            yield _Entry(call.result_seq, done, call.result_at or call.at, task.agent, task.path)
        elif self._document.result is None and call.id not in self._asked:
            yield _Entry(_LAST, WaitingState(kind="tool", correlation_id=call.id), call.at, task.agent, task.path)

    def _enclosing(self, path: str) -> str:
        """Return the path of the innermost task that a path is or is inside of, empty for the main star."""
        while path and path not in self._tasks:
            path = path[: max(0, *(path.rfind(mark) for mark in "/:."))]
        return path


def _verdict(verdict: ReviewVerdict | None) -> dict[str, str]:
    return {"verdict": verdict.status} if verdict else {}


def _called(item: RunInterrupt) -> str:
    """Return the id of the call that an interrupt is about, else its own."""
    return str((item.call or {}).get("call_id") or item.id)


def _arguments(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments, of long ones the beginning of their text."""
    if list(args) == ["…"]:  # as a document has those that are too long for it
        return {"…": str(args["…"])[:STATE_CHARS]}
    text = canonical(args)
    return dict(args) if len(text) <= STATE_CHARS else {"…": text[:STATE_CHARS]}
