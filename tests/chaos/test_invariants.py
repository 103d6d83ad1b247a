"""The judges of a chaos round judge: one that never objects would be worth nothing."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from brain.conversation.states import AssistantMessageState, UserMessageState
from tests.chaos.books import Accepted, Books, Reading
from tests.chaos.evidence import Evidence
from tests.chaos.invariants import violations
from tests.chaos.orders import TILL, Call, Order, Task
from tests.support.sse import Event

ORDER = Order("alpha-1", "unsafe", [Task("t1", TILL, [Call("charge")])])
WHAT = "alpha-1.t1.0.0"
CALL = {"call_id": "t1.0.0", "name": "till.charge", "args": {"what": WHAT}}
TOLD: list[tuple[str, dict[str, Any]]] = [
    ("run_started", {"run_id": "r"}),
    ("tool_start", CALL),
    ("tool_result", {"call_id": "t1.0.0", "status": "succeeded"}),
    ("done", {"status": "succeeded", "reply": "alpha-1"}),
]


def change(**different: Any) -> dict[str, Any]:
    """The batch that ended the run, or another one."""
    return {
        "run_id": "r", "xid": 3, "app": "worker-1.1",
        "old_status": "running", "new_status": "succeeded", "old_fence": 1, "new_fence": 1,
        "old_seq": 1, "new_seq": 4, "old_flushes": 0, "new_flushes": 1,
        **different,
    }  # fmt: skip


ACCEPTED = change(
    xid=1, app="api-1.1", old_status=None, new_status="queued", old_fence=0, new_fence=0, old_seq=0, new_seq=1,
    new_flushes=0,
)  # fmt: skip
CLAIMED = change(xid=2, old_status="queued", new_status="running", old_fence=0, new_seq=1, new_flushes=0)


@pytest.fixture
def sound() -> Evidence:
    """What a sound round of one run leaves."""
    books = Books()
    books.accept(Accepted("r", "alpha", "thread-1", ORDER))
    books.statuses["r"] = ["queued", "running", "succeeded"]
    reading = Reading("r", "the caller")
    for number, (kind, data) in enumerate(TOLD, 1):
        books.heard(reading, Event(number, kind, data))
    books.readings.append(reading)
    place = {"tenant": "alpha", "thread_id": "thread-1", "branch_id": "main"}
    said = [UserMessageState(text=ORDER.text), AssistantMessageState(content="Done.")]
    run = {
        "id": "r",
        "status": "succeeded",
        "input": ORDER.text,
        "seq": 4,
        "arrival": 1,
        "started_at": 1,
        "ended_at": 2,
    }
    return Evidence(
        books=books,
        runs=[place | run | {"result": {}}],
        events=[{"run_id": "r", "seq": n, "type": kind, "data": data} for n, (kind, data) in enumerate(TOLD, 1)],
        changes=[ACCEPTED, CLAIMED, change()],
        writes=[
            {"run_id": "r", "xid": 1, "app": "api-1.1", "what": "events", "first_seq": 1, "last_seq": 1},
            {"run_id": "r", "xid": 3, "app": "worker-1.1", "what": "events", "first_seq": 2, "last_seq": 4},
        ],
        branches=[place | {"id": "main", "tip": 2}],
        states=[place | {"run_id": "r", "position": n, "state": state} for n, state in enumerate(said, 1)],
        effects=[{"at": "done", "tool": "charge", "what": WHAT, "key": "k"}],
        ledger=[{"run_id": "r", "key": "k", "state": "succeeded", "arguments": {"what": WHAT}}],
        tenant_texts=[("runs", "alpha", ORDER.text)],
        texts=[("log api-1", "all is well")],
        planted={"model's key": "s3cret"},
    )


def test_a_sound_round_violates_nothing(sound: Evidence) -> None:
    assert violations(sound) == []


def lost(found: Evidence) -> Evidence:
    return replace(found, runs=[])


def unfinished(found: Evidence) -> Evidence:
    return replace(found, runs=[{**found.runs[0], "status": "running"}])


def changed_after_its_end(found: Evidence) -> Evidence:
    again = change(xid=4, old_status="succeeded", new_status="failed", old_seq=4, old_flushes=1)
    return replace(found, changes=[*found.changes, again])


def seen_otherwise(found: Evidence) -> Evidence:
    found.books.statuses["r"] = ["failed", "succeeded"]
    return found


def charged_twice(found: Evidence) -> Evidence:
    return replace(found, effects=[*found.effects, *found.effects])


def put_under_two_keys(found: Evidence) -> Evidence:
    puts = [{"at": "done", "tool": "put", "what": WHAT, "key": key} for key in ("k", "l")]
    return replace(found, effects=puts)


def refused_and_done(found: Evidence) -> Evidence:
    found.books.decided[WHAT] = "refused"
    return found


def told_but_not_done(found: Evidence) -> Evidence:
    return replace(found, effects=[])


def never_dispatched(found: Evidence) -> Evidence:
    return replace(found, ledger=[{**found.ledger[0], "state": "intended"}])


def never_settled(found: Evidence) -> Evidence:
    return replace(found, ledger=[{**found.ledger[0], "state": "dispatched"}])


def unanswered(found: Evidence) -> Evidence:
    return replace(found, events=[event for event in found.events if event["type"] != "tool_result"])


def told_differently(found: Evidence) -> Evidence:
    found.books.readings[0].events[0] = Event(1, "run_started", {"run_id": "another"})
    return found


def told_on_after_the_end(found: Evidence) -> Evidence:
    late: dict[str, Any] = {"run_id": "r", "seq": 5, "type": "thinking", "data": {}}
    return replace(found, events=[*found.events, late], runs=[{**found.runs[0], "seq": 5}])


def gone_back(found: Evidence) -> Evidence:
    return replace(found, changes=[ACCEPTED, CLAIMED, change(old_seq=5)])


def written_by_another(found: Evidence) -> Evidence:
    return replace(found, changes=[ACCEPTED, CLAIMED, change(app="worker-2.1")])


def written_beside(found: Evidence) -> Evidence:
    return replace(found, writes=[*found.writes, {"run_id": "r", "xid": 9, "app": "worker-2.1", "what": "steps"}])


def input_lost(found: Evidence) -> Evidence:
    return replace(found, states=[{**found.states[0], "run_id": "another"}, found.states[1]])


def left_over(found: Evidence) -> Evidence:
    return replace(found, services=["worker-1 stopped and process 7 outlived it"])


def told_of_another_tenant(found: Evidence) -> Evidence:
    return replace(found, tenant_texts=[("runs", "beta", "see alpha-1")])


def given_away(found: Evidence) -> Evidence:
    return replace(found, texts=[("log api-1", "with s3cret")])


@pytest.mark.parametrize(
    ("spoil", "invariant"),
    [
        (lost, "every accepted run ends"),
        (unfinished, "every accepted run ends"),
        (changed_after_its_end, "a terminal status never changes"),
        (seen_otherwise, "a terminal status never changes"),
        (charged_twice, "one effect per key"),
        (put_under_two_keys, "one effect per key"),
        (refused_and_done, "what was refused isn t done"),
        (told_but_not_done, "what is told of effects is true"),
        (never_dispatched, "the ledger knows of every effect"),
        (never_settled, "the ledger knows of every effect"),
        (unanswered, "every call is answered"),
        (unanswered, "events are numbered without a gap"),
        (told_differently, "every reader is told the same"),
        (told_on_after_the_end, "done is last and once"),
        (gone_back, "the history of a run has no gap"),
        (written_by_another, "nothing is written under an old token"),
        (written_beside, "all is written by the run s writer"),
        (input_lost, "a branch has one tip with every input in order"),
        (left_over, "no process is left or ends by itself"),
        (told_of_another_tenant, "nothing of a tenant is visible to another"),
        (given_away, "no secret is anywhere"),
    ],
)
def test_what_is_wrong_is_noticed(sound: Evidence, spoil: Callable[[Evidence], Evidence], invariant: str) -> None:
    found = violations(spoil(deepcopy(sound)))

    assert invariant in {item.invariant for item in found}


def test_a_gap_in_a_stream_is_noticed_at_once() -> None:
    books = Books()
    reading = Reading("r", "a reader")

    books.heard(reading, Event(1, "run_started", {}))
    books.heard(reading, Event(3, "done", {}))

    assert [item.what for item in books.violations] == ["a reader was told 3 after 1"]
