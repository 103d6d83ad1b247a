"""Each invariant reports the violation that it is there for, and nothing in valid observations."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from hashlib import sha256
from time import monotonic
from typing import Any

import pytest

from starling.core.conversation.states import AssistantMessageState, UserMessageState
from starling.infra.postgres.kill_switches import SwitchKind
from tests.chaos.client_history import Accepted, ClientHistory, Reading, Violation
from tests.chaos.invariants import violations
from tests.chaos.observations import Observations
from tests.chaos.report import described
from tests.chaos.timing_guarantees import KeyProbe, OpenStream, SwitchedOff, TimingGuarantees
from tests.chaos.workload import TILL, Call, PlannedRequest, Task
from tests.support.sse import Event

PLANNED = PlannedRequest("alpha-1", "unsafe", [Task("t1", TILL, [Call("charge")])])
WHAT = "alpha-1.t1.0.0"
CALLED = 900.0
CALL = {"call_id": "t1.0.0", "name": "till.charge", "args": {"what": WHAT}, "path": "t1"}
RESULT = {"call_id": "t1.0.0", "status": "succeeded", "artifact": sha256(b"all of it").hexdigest()}
DONE = {"status": "succeeded", "reply": "alpha-1"}
type Told = list[tuple[str, dict[str, Any]]]
TOLD: Told = [("run_started", {"run_id": "r"}), ("tool_start", CALL), ("tool_result", RESULT), ("done", DONE)]
TOLD_OF_A_TEAM: Told = [
    ("run_started", {"run_id": "r"}),
    ("task_start", {"path": "t1", "agent": "desk"}),
    ("plan", {"path": "t1:2"}),
    ("task_start", {"path": "t1:2/t1", "agent": "cashier"}),
    ("tool_start", {**CALL, "path": "t1:2/t1"}),
    ("tool_result", RESULT),
    ("task_result", {"path": "t1:2/t1", "agent": "cashier"}),
    ("task_result", {"path": "t1", "agent": "desk"}),
    ("done", DONE),
]

TOLD_OF_A_TRIAL: Told = [
    ("run_started", {"run_id": "r"}),
    ("task_start", {"path": "t1", "agent": "architect"}),
    ("plan", {"path": "t1.case1"}),
    ("task_start", {"path": "t1.case1/t1", "agent": "cashier"}),
    ("tool_start", {**CALL, "path": "t1.case1/t1"}),
    ("tool_result", {**RESULT, "simulated": "fixture"}),
    ("task_result", {"path": "t1.case1/t1", "agent": "cashier"}),
    ("task_result", {"path": "t1", "agent": "architect"}),
    ("done", DONE),
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
def valid() -> Observations:
    """What a sound round of one run leaves."""
    history = ClientHistory(guarantees=TimingGuarantees(prune_age=60))
    history.accept(Accepted("r", "alpha", "thread-1", PLANNED, PLANNED.text))
    history.statuses["r"] = ["queued", "running", "succeeded"]
    reading = Reading("r", "the caller")
    for number, (kind, data) in enumerate(TOLD, 1):
        history.record_event(reading, Event(number, kind, data))
    history.readings.append(reading)
    place = {"tenant": "alpha", "thread_id": "thread-1", "branch_id": "main"}
    said = [UserMessageState(text=PLANNED.text), AssistantMessageState(content="Done.")]
    run = {
        "id": "r",
        "status": "succeeded",
        "input": PLANNED.text,
        "seq": 4,
        "arrival": 1,
        "started_at": 1,
        "ended_at": 2,
        "end": 1_000.0,
        "trimmed": 0,
        "principal": {"key_id": "key"},
    }
    return Observations(
        history=history,
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
        artifacts=[{"run_id": "r", "hash": RESULT["artifact"], "content": "all of it"}],
        ledger=[{"run_id": "r", "key": "k", "state": "succeeded", "settled_at": None, "arguments": {"what": WHAT}}],
        tenant_texts=[("runs", "alpha", PLANNED.text)],
        texts=[("log api-1", "all is well")],
        planted={"model's key": "s3cret"},
    )


def test_a_sound_round_violates_nothing(valid: Observations) -> None:
    assert violations(valid) == []


def test_description_of_a_violation_has_the_tracebacks_of_the_logs(valid: Observations) -> None:
    lines = [
        '{"event": "GET /v1/runs/r failed", "level": "error", "exception": "Traceback:\\nRuntimeError: why"}',
        "Fatal Python error: Segmentation fault",
        *(f'{{"event": "line {number}", "level": "info"}}' for number in range(30)),
    ]
    found = replace(valid, texts=[("log api-1", "\n".join(lines)), ("prompt", "of a model")])

    text = described([Violation("no exception reaches a caller", "GET /v1/runs/r: status 500", "r")], found)

    assert "VIOLATED no exception reaches a caller: r GET /v1/runs/r: status 500" in text
    assert "\nRuntimeError: why" in text
    assert "Segmentation fault" in text
    assert [number for number in range(30) if f'"line {number}"' in text] == list(range(10, 30))
    assert "of a model" not in text


def lost(found: Observations) -> Observations:
    return replace(found, runs=[])


def unfinished(found: Observations) -> Observations:
    return replace(found, runs=[{**found.runs[0], "status": "running"}])


def begun_twice(found: Observations) -> Observations:
    return replace(found, runs=[*found.runs, {**found.runs[0], "id": "s"}])


def changed_after_its_end(found: Observations) -> Observations:
    again = change(xid=4, old_status="succeeded", new_status="failed", old_seq=4, old_flushes=1)
    return replace(found, changes=[*found.changes, again])


def seen_otherwise(found: Observations) -> Observations:
    found.history.statuses["r"] = ["failed", "succeeded"]
    return found


def charged_twice(found: Observations) -> Observations:
    return replace(found, effects=[*found.effects, *found.effects])


def put_under_two_keys(found: Observations) -> Observations:
    puts = [{"at": "done", "tool": "put", "what": WHAT, "key": key} for key in ("k", "l")]
    return replace(found, effects=puts)


def refused_and_done(found: Observations) -> Observations:
    found.history.decisions[WHAT] = "refused"
    return found


def told_but_not_done(found: Observations) -> Observations:
    return replace(found, effects=[])


def done(found: Observations, tool: str) -> Observations:
    """Something was done that nobody was told of."""
    return replace(found, effects=[*found.effects, {**found.effects[-1], "tool": tool, "what": "alpha-1.t1.0.1"}])


def never_dispatched(found: Observations) -> Observations:
    return replace(found, ledger=[{**found.ledger[0], "state": "intended"}])


def never_settled(found: Observations) -> Observations:
    return replace(found, ledger=[{**found.ledger[0], "state": "dispatched"}])


def told(found: Observations, events: Told) -> Observations:
    """The run told these events, and its reader received them."""
    count = len(events)
    found.history.readings[0].events[:] = [Event(number, kind, data) for number, (kind, data) in enumerate(events, 1)]
    return replace(
        found,
        runs=[{**found.runs[0], "seq": count}],
        events=[{"run_id": "r", "seq": n, "type": kind, "data": data} for n, (kind, data) in enumerate(events, 1)],
        changes=[ACCEPTED, CLAIMED, change(new_seq=count)],
        writes=[found.writes[0], {**found.writes[1], "last_seq": count}],
    )


def of_a_team(found: Observations) -> Observations:
    return told(found, TOLD_OF_A_TEAM)


def of_a_trial(found: Observations) -> Observations:
    """The call was answered in a trial, and not made."""
    return replace(told(found, TOLD_OF_A_TRIAL), effects=[], ledger=[])


def simulated_and_done(found: Observations) -> Observations:
    return told(found, TOLD_OF_A_TRIAL)


def task_without_a_result(found: Observations) -> Observations:
    return told(found, [*TOLD_OF_A_TEAM[:6], *TOLD_OF_A_TEAM[7:]])


def task_that_ended_twice(found: Observations) -> Observations:
    return told(found, [*TOLD_OF_A_TEAM[:7], *TOLD_OF_A_TEAM[6:]])


def member_that_outlived_its_team(found: Observations) -> Observations:
    *before, member, team, done = TOLD_OF_A_TEAM
    return told(found, [*before, team, member, done])


def team_that_planned_before_its_task(found: Observations) -> Observations:
    begun, team, plan, *after = TOLD_OF_A_TEAM
    return told(found, [begun, plan, team, *after])


def checkpoint_left(found: Observations) -> Observations:
    return replace(found, checkpoints=[{"name": "checkpoint_blobs", "run_id": "r", "path": "t1"}])


def unanswered(found: Observations) -> Observations:
    return replace(found, events=[event for event in found.events if event["type"] != "tool_result"])


def answered_with_another_answer(found: Observations) -> Observations:
    call, answer = {**CALL, "name": "lying.look"}, {**RESULT, "result": "look something else: fine"}
    return told(found, [TOLD[0], ("tool_start", call), ("tool_result", answer), TOLD[-1]])


def told_differently(found: Observations) -> Observations:
    found.history.readings[0].events[0] = Event(1, "run_started", {"run_id": "another"})
    return found


def told_on_after_the_end(found: Observations) -> Observations:
    late: dict[str, Any] = {"run_id": "r", "seq": 5, "type": "thinking", "data": {}}
    return replace(found, events=[*found.events, late], runs=[{**found.runs[0], "seq": 5}])


def failed_unforeseen(found: Observations) -> Observations:
    return told(found, [*TOLD[:3], ("done", {"status": "failed", "code": "internal"})])


def failed_by_the_model(found: Observations) -> Observations:
    return told(found, [*TOLD[:3], ("done", {"status": "failed", "code": "llm_server_error"})])


def gone_back(found: Observations) -> Observations:
    return replace(found, changes=[ACCEPTED, CLAIMED, change(old_seq=5)])


def written_by_another(found: Observations) -> Observations:
    return replace(found, changes=[ACCEPTED, CLAIMED, change(app="worker-2.1")])


def written_beside(found: Observations) -> Observations:
    return replace(found, writes=[*found.writes, {"run_id": "r", "xid": 9, "app": "worker-2.1", "what": "steps"}])


def input_lost(found: Observations) -> Observations:
    return replace(found, states=[{**found.states[0], "run_id": "another"}, found.states[1]])


def left_over(found: Observations) -> Observations:
    return replace(found, services=["worker-1 stopped and process 7 outlived it"])


def told_of_another_tenant(found: Observations) -> Observations:
    return replace(found, tenant_texts=[("runs", "beta", "see alpha-1")])


def pruned(found: Observations, *, time: float = 1_100.0) -> Observations:
    """All but `done` went, as it may."""
    gone = [{"name": "events", "run_id": "r", "time": time, "row": event} for event in found.events[:-1]]
    gone.append({"name": "ledger", "run_id": "r", "time": time, "row": found.ledger[0]})
    gone.append({"name": "run_artifacts", "run_id": "r", "time": time, "row": {"hash": RESULT["artifact"]}})
    return replace(found, artifacts=[], gone=gone, runs=[{**found.runs[0], "trimmed": 3}])


def pruned_early(found: Observations) -> Observations:
    return pruned(found, time=1_030.0)


def pruned_unended(found: Observations) -> Observations:
    return pruned(replace(found, runs=[{**found.runs[0], "end": None}]))


def pruned_to_the_end(found: Observations) -> Observations:
    gone = {"name": "events", "run_id": "r", "time": 1_100.0, "row": found.events[-1]}
    return replace(pruned(found), gone=[*pruned(found).gone, gone])


def pruned_in_doubt(found: Observations) -> Observations:
    return pruned(replace(found, ledger=[{**found.ledger[0], "state": "in_doubt"}]))


def pruned_in_the_middle(found: Observations) -> Observations:
    return replace(pruned(found), gone=[item for item in pruned(found).gone if item["row"].get("seq") != 2])


def kept_in_part(found: Observations) -> Observations:
    return replace(found, artifacts=[{**found.artifacts[0], "content": "all of"}])


def not_kept(found: Observations) -> Observations:
    return replace(found, artifacts=[])


def told_of_a_gap_that_is_none(found: Observations) -> Observations:
    found.history.readings[0].events[:2] = [Event(2, "gap", {"from": 1, "to": 2})]
    return found


def switched_off(found: Observations, kind: SwitchKind, name: str, since: float = CALLED - 10) -> Observations:
    found.history.guarantees.switched_off.append(SwitchedOff(kind, name, "*", since, CALLED + 1))
    return found


def team_switched_off(found: Observations) -> Observations:
    return switched_off(of_a_team(found), "agent", "desk")


def revoked(found: Observations) -> TimingGuarantees:
    found.history.guarantees.switched_off.append(SwitchedOff("key", "key", "alpha", CALLED + 100))
    return found.history.guarantees


def called_for_a_revoked_key(found: Observations) -> Observations:
    found.history.guarantees.switched_off.append(SwitchedOff("key", "key", "alpha", CALLED - 10))
    return found


def told_on_with_a_revoked_key(found: Observations) -> Observations:
    revoked(found).streams.append(OpenStream("key", CALLED, CALLED + 110))
    return found


def let_in_with_a_revoked_key(found: Observations) -> Observations:
    revoked(found).key_probes.append(KeyProbe("key", CALLED + 105, 200))
    return found


def given_away(found: Observations) -> Observations:
    return replace(found, texts=[("log api-1", "with s3cret")])


@pytest.mark.parametrize(
    ("spoil", "invariant"),
    [
        (lost, "every accepted run ends"),
        (unfinished, "every accepted run ends"),
        (begun_twice, "a repeated request begins no second run"),
        (changed_after_its_end, "a terminal status never changes"),
        (seen_otherwise, "a terminal status never changes"),
        (charged_twice, "one effect per key"),
        (put_under_two_keys, "one effect per key"),
        (refused_and_done, "refused calls have no effect"),
        (told_but_not_done, "reported effects match recorded effects"),
        (simulated_and_done, "reported effects match recorded effects"),
        (partial(done, tool="charge"), "reported effects match recorded effects"),
        (never_dispatched, "every effect is in the ledger"),
        (never_settled, "every effect is in the ledger"),
        (unanswered, "every call is answered"),
        (answered_with_another_answer, "an answer belongs to its call"),
        (task_without_a_result, "every task that begins ends once"),
        (task_that_ended_twice, "every task that begins ends once"),
        (member_that_outlived_its_team, "teams work only while their task is open"),
        (team_that_planned_before_its_task, "teams work only while their task is open"),
        (checkpoint_left, "no checkpoint of an ended run is left"),
        (unanswered, "events are numbered without a gap"),
        (told_differently, "every reader receives the stored events"),
        (told_on_after_the_end, "done is the last event and occurs once"),
        (failed_by_the_model, "no run ends because of the model"),
        (failed_unforeseen, "no run fails for a reason that nobody foresaw"),
        (gone_back, "changes of a run are contiguous"),
        (written_by_another, "only the lease holder writes"),
        (written_beside, "rows are written only by the run writer"),
        (input_lost, "a branch has one tip with every input in order"),
        (left_over, "no service crashes or leaves a process"),
        (told_of_another_tenant, "tenants are isolated"),
        (pruned_early, "only old data of ended runs is pruned"),
        (pruned_unended, "only old data of ended runs is pruned"),
        (pruned_to_the_end, "only old data of ended runs is pruned"),
        (pruned_in_doubt, "only old data of ended runs is pruned"),
        (pruned_in_the_middle, "only pruned events are missing from streams"),
        (told_of_a_gap_that_is_none, "only pruned events are missing from streams"),
        (kept_in_part, "artifacts are kept whole"),
        (not_kept, "artifacts are kept whole"),
        (partial(switched_off, kind="tenant", name="alpha"), "switched off targets are not called"),
        (partial(switched_off, kind="server", name="till"), "switched off targets are not called"),
        (partial(switched_off, kind="agent", name="mcp_agent_till"), "switched off targets are not called"),
        (team_switched_off, "switched off targets are not called"),
        (called_for_a_revoked_key, "switched off targets are not called"),
        (told_on_with_a_revoked_key, "revoked keys are refused"),
        (let_in_with_a_revoked_key, "revoked keys are refused"),
        (given_away, "no secret is exposed"),
    ],
)
def test_each_violation_is_reported(
    valid: Observations, spoil: Callable[[Observations], Observations], invariant: str
) -> None:
    found = violations(spoil(deepcopy(valid)))

    assert invariant in {item.invariant for item in found}


def just_switched_off(found: Observations) -> Observations:
    return switched_off(found, "tenant", "alpha", since=CALLED - 3)


def agent_switched_off_that_is_not_in_the_team(found: Observations) -> Observations:
    return switched_off(of_a_team(found), "agent", "mcp_agent_till")


def another_switched_off(found: Observations) -> Observations:
    return switched_off(found, "server", "vault")


def switched_off_while_disturbed(found: Observations) -> Observations:
    """It was off for ten seconds, and Postgres was away until two seconds before the call."""
    found.history.guarantees.note_disturbance(CALLED - 9, CALLED - 2)
    return switched_off(found, "tenant", "alpha")


def closed_and_refused_in_time(found: Observations) -> Observations:
    guarantees = revoked(found)
    guarantees.streams.append(OpenStream("key", CALLED, CALLED + 104))
    guarantees.key_probes += [KeyProbe("key", CALLED + 101, 200), KeyProbe("key", CALLED + 105, 401)]
    return found


def told_of_what_was_pruned(found: Observations) -> Observations:
    found.history.readings[0].events[:3] = [Event(3, "gap", {"from": 1, "to": 3})]
    return pruned(found)


@pytest.mark.parametrize(
    "change_allowed",
    [
        just_switched_off,
        of_a_team,
        of_a_trial,
        agent_switched_off_that_is_not_in_the_team,
        another_switched_off,
        switched_off_while_disturbed,
        closed_and_refused_in_time,
        pruned,
        told_of_what_was_pruned,
        partial(done, tool="read_it"),
    ],
)
def test_allowed_observations_violate_nothing(
    valid: Observations, change_allowed: Callable[[Observations], Observations]
) -> None:
    assert violations(change_allowed(deepcopy(valid))) == []


def test_gap_in_received_events_is_a_violation() -> None:
    history = ClientHistory()
    reading = Reading("r", "a reader")

    history.record_event(reading, Event(1, "run_started", {}))
    history.record_event(reading, Event(3, "done", {}))

    assert [item.what for item in history.violations] == ["a reader received 3 after 1"]


def test_late_response_from_before_the_end_is_ignored() -> None:
    history = ClientHistory()
    asked = monotonic()

    history.record_status("r", "cancelled", asked)
    history.record_status("r", "queued", asked)
    late = history.statuses["r"].copy()
    history.record_status("r", "queued", monotonic())

    assert late == ["cancelled"]
    assert history.statuses["r"] == ["cancelled", "queued"]
