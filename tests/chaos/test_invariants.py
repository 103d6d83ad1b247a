"""The judges of a chaos round judge: one that never objects would be worth nothing."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from hashlib import sha256
from time import monotonic
from typing import Any

import pytest

from brain.conversation.states import AssistantMessageState, UserMessageState
from starling.infra.postgres.kill_switches import SwitchKind
from tests.chaos.books import Accepted, Books, Reading
from tests.chaos.evidence import Evidence
from tests.chaos.invariants import violations
from tests.chaos.orders import TILL, Call, Order, Task
from tests.chaos.promises import Halt, Knock, Promises, Stream
from tests.support.sse import Event

ORDER = Order("alpha-1", "unsafe", [Task("t1", TILL, [Call("charge")])])
WHAT = "alpha-1.t1.0.0"
CALLED = 900.0
CALL = {"call_id": "t1.0.0", "name": "till.charge", "args": {"what": WHAT}}
TOLD: list[tuple[str, dict[str, Any]]] = [
    ("run_started", {"run_id": "r"}),
    ("tool_start", CALL),
    ("tool_result", {"call_id": "t1.0.0", "status": "succeeded", "artifact": sha256(b"all of it").hexdigest()}),
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
    books = Books(promises=Promises(prune_age=60))
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
        "end": 1_000.0,
        "trimmed": 0,
        "principal": {"key_id": "key"},
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
        effects=[{"at": at, "tool": "charge", "what": WHAT, "key": "k", "time": CALLED} for at in ("arrived", "done")],
        artifacts=[{"run_id": "r", "call_id": "t1.0.0", "content": "all of it"}],
        ledger=[{"run_id": "r", "key": "k", "state": "succeeded", "settled_at": None, "arguments": {"what": WHAT}}],
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


def pruned(found: Evidence, *, time: float = 1_100.0) -> Evidence:
    """All but `done` went, as it may."""
    gone = [{"name": "events", "run_id": "r", "time": time, "row": event} for event in found.events[:-1]]
    gone.append({"name": "ledger", "run_id": "r", "time": time, "row": found.ledger[0]})
    gone.append({"name": "run_artifacts", "run_id": "r", "time": time, "row": {"call_id": "t1.0.0"}})
    return replace(found, artifacts=[], gone=gone, runs=[{**found.runs[0], "trimmed": 3}])


def pruned_early(found: Evidence) -> Evidence:
    return pruned(found, time=1_030.0)


def pruned_unended(found: Evidence) -> Evidence:
    return pruned(replace(found, runs=[{**found.runs[0], "end": None}]))


def pruned_to_the_end(found: Evidence) -> Evidence:
    gone = {"name": "events", "run_id": "r", "time": 1_100.0, "row": found.events[-1]}
    return replace(pruned(found), gone=[*pruned(found).gone, gone])


def pruned_in_doubt(found: Evidence) -> Evidence:
    return pruned(replace(found, ledger=[{**found.ledger[0], "state": "in_doubt"}]))


def pruned_in_the_middle(found: Evidence) -> Evidence:
    return replace(pruned(found), gone=[item for item in pruned(found).gone if item["row"].get("seq") != 2])


def kept_in_part(found: Evidence) -> Evidence:
    return replace(found, artifacts=[{**found.artifacts[0], "content": "all of"}])


def not_kept(found: Evidence) -> Evidence:
    return replace(found, artifacts=[])


def told_of_a_gap_that_is_none(found: Evidence) -> Evidence:
    found.books.readings[0].events[:2] = [Event(2, "gap", {"from": 1, "to": 2})]
    return found


def switched_off(found: Evidence, kind: SwitchKind, name: str, since: float = CALLED - 10) -> Evidence:
    found.books.promises.halts.append(Halt(kind, name, "*", since, CALLED + 1))
    return found


def revoked(found: Evidence) -> Promises:
    found.books.promises.halts.append(Halt("key", "key", "alpha", CALLED + 100))
    return found.books.promises


def called_for_a_revoked_key(found: Evidence) -> Evidence:
    found.books.promises.halts.append(Halt("key", "key", "alpha", CALLED - 10))
    return found


def told_on_with_a_revoked_key(found: Evidence) -> Evidence:
    revoked(found).streams.append(Stream("key", CALLED, CALLED + 110))
    return found


def let_in_with_a_revoked_key(found: Evidence) -> Evidence:
    revoked(found).knocks.append(Knock("key", CALLED + 105, 200))
    return found


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
        (pruned_early, "only old leavings of ended runs are pruned"),
        (pruned_unended, "only old leavings of ended runs are pruned"),
        (pruned_to_the_end, "only old leavings of ended runs are pruned"),
        (pruned_in_doubt, "only old leavings of ended runs are pruned"),
        (pruned_in_the_middle, "what is missing from a stream was pruned"),
        (told_of_a_gap_that_is_none, "what is missing from a stream was pruned"),
        (kept_in_part, "what was too long is kept whole"),
        (not_kept, "what was too long is kept whole"),
        (partial(switched_off, kind="tenant", name="alpha"), "what is switched off calls nothing"),
        (partial(switched_off, kind="server", name="till"), "what is switched off calls nothing"),
        (partial(switched_off, kind="agent", name="mcp_agent_till"), "what is switched off calls nothing"),
        (called_for_a_revoked_key, "what is switched off calls nothing"),
        (told_on_with_a_revoked_key, "a revoked key opens nothing"),
        (let_in_with_a_revoked_key, "a revoked key opens nothing"),
        (given_away, "no secret is anywhere"),
    ],
)
def test_what_is_wrong_is_noticed(sound: Evidence, spoil: Callable[[Evidence], Evidence], invariant: str) -> None:
    found = violations(spoil(deepcopy(sound)))

    assert invariant in {item.invariant for item in found}


def just_switched_off(found: Evidence) -> Evidence:
    return switched_off(found, "tenant", "alpha", since=CALLED - 3)


def another_switched_off(found: Evidence) -> Evidence:
    return switched_off(found, "server", "vault")


def switched_off_while_disturbed(found: Evidence) -> Evidence:
    """It was off for ten seconds, and Postgres was away until two seconds before the call."""
    found.books.promises.note_disturbance(CALLED - 9, CALLED - 2)
    return switched_off(found, "tenant", "alpha")


def closed_and_refused_in_time(found: Evidence) -> Evidence:
    promises = revoked(found)
    promises.streams.append(Stream("key", CALLED, CALLED + 104))
    promises.knocks += [Knock("key", CALLED + 101, 200), Knock("key", CALLED + 105, 401)]
    return found


def told_of_what_was_pruned(found: Evidence) -> Evidence:
    found.books.readings[0].events[:3] = [Event(3, "gap", {"from": 1, "to": 3})]
    return pruned(found)


@pytest.mark.parametrize(
    "change_allowed",
    [
        just_switched_off,
        another_switched_off,
        switched_off_while_disturbed,
        closed_and_refused_in_time,
        pruned,
        told_of_what_was_pruned,
    ],
)
def test_what_may_be_violates_nothing(sound: Evidence, change_allowed: Callable[[Evidence], Evidence]) -> None:
    assert violations(change_allowed(deepcopy(sound))) == []


def test_a_gap_in_a_stream_is_noticed_at_once() -> None:
    books = Books()
    reading = Reading("r", "a reader")

    books.heard(reading, Event(1, "run_started", {}))
    books.heard(reading, Event(3, "done", {}))

    assert [item.what for item in books.violations] == ["a reader was told 3 after 1"]


def test_who_asked_before_a_run_ended_may_be_told_late_how_it_stood() -> None:
    books = Books()
    asked = monotonic()

    books.saw("r", "cancelled", asked)
    books.saw("r", "queued", asked)
    late = books.statuses["r"].copy()
    books.saw("r", "queued", monotonic())

    assert late == ["cancelled"]
    assert books.statuses["r"] == ["cancelled", "queued"]
