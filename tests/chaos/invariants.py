"""The invariants, each a function from the observations of an experiment to the violations in them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import pairwise

from tests.chaos.build_invariants import BUILD_INVARIANTS
from tests.chaos.client_history import Reading, Violation
from tests.chaos.cluster import EFFECT_SERVERS, TENANTS
from tests.chaos.observations import Invariant, Observations, Row, grouped, input_of, is_terminal, tasks_around
from tests.chaos.timing_guarantees import CLOSE_SECONDS, SWITCH_SECONDS, SwitchedOff
from tests.chaos.workload import HOSTILE

_HOSTILE_TOOLS = tuple(f"{server}." for server in HOSTILE)
_EFFECT_TOOLS = tuple(f"{server}." for server in EFFECT_SERVERS)
_OF_A_STAR = ("plan", "route", "warning")  # events whose path is that of a team, not of a task inside it


def every_accepted_run_ends(found: Observations) -> Iterator[tuple[str, str]]:
    """Nothing that a caller has an id of is lost, and nothing is left over."""
    for run_id, accepted in found.history.accepted.items():
        row = found.run_of.get(run_id)
        if row is None:
            yield run_id, "was accepted and isn't there"
        elif (row["tenant"], row["thread_id"], row["input"]) != (
            accepted.tenant, accepted.thread_id or row["thread_id"], accepted.text or row["input"],
        ):  # fmt: skip
            yield run_id, "isn't what was accepted"
    for row in found.runs:
        if not is_terminal(row["status"]) or row["ended_at"] is None or row["result"] is None:
            yield row["id"], f"is {row['status']} after everything healed"


def a_repeated_request_begins_no_second_run(found: Observations) -> Iterator[tuple[str, str]]:
    """Inputs differ from request to request. One whose run was cancelled may be begun again."""
    going_on = [row for row in found.runs if row["status"] != "cancelled" and not row.get("build")]
    for text, (first, *more) in grouped(going_on, "input").items():
        for row in more:
            yield row["id"], f"was begun by the same request as {first['id']}: {text[:80]}"


def a_terminal_status_never_changes(found: Observations) -> Iterator[tuple[str, str]]:
    for change in found.changes:
        if is_terminal(change["old_status"]):
            yield change["run_id"], f"was {change['old_status']} and changed by {change['app']}: {_short(change)}"
    for run_id, seen in found.history.statuses.items():
        ends = [status for status in seen if is_terminal(status)]
        final = found.run_of[run_id]["status"] if run_id in found.run_of else "nothing"
        if ends and (len(seen) > seen.index(ends[0]) + 1 or ends[0] != final):
            yield run_id, f"was seen as {', '.join(seen)} and is {final}"


def one_effect_per_key(found: Observations) -> Iterator[tuple[str, str]]:
    """What an unsafe call is about happens once at most; an idempotent one again only under the same key."""
    run_ids = {run.planned.token: run_id for run_id, run in found.history.accepted.items()}
    for what, lines in grouped((line for line in found.effects if line["at"] == "done"), "what").items():
        run_id = run_ids.get(what.partition(".")[0], "")
        tool, keys = lines[0]["tool"], {line["key"] for line in lines}
        if tool == "charge" and len(lines) > 1:
            yield run_id, f"{what} was charged {len(lines)} times, under {keys}"
        if tool == "put" and len(lines) > 1 and (len(keys) > 1 or None in keys):
            yield run_id, f"{what} was put {len(lines)} times, under {keys}"


def refused_calls_have_no_effect(found: Observations) -> Iterator[tuple[str, str]]:
    done = {line["what"] for line in found.effects if line["at"] == "done"}
    for what, decision in found.history.decisions.items():
        if decision == "refused" and what in done:
            yield "", f"{what} was refused and done"


def reported_effects_match_recorded_effects(found: Observations) -> Iterator[tuple[str, str]]:
    """A call that is told to have succeeded has had its effect; one that had an effect was told of before.

    Calls that a trial answered are told as such, and have none. Those that only read are written down afterwards: one
    of a worker that died is told of where the run goes on, and nowhere if it was cancelled meanwhile.
    """
    done = {line["what"] for line in found.effects if line["at"] == "done"}
    announced: set[str] = set()
    for run_id, events in found.events_of.items():
        calls = {event["data"]["call_id"]: event["data"] for event in events if event["type"] == "tool_start"}
        simulated = {event["data"].get("call_id") for event in events if event["data"].get("simulated")}
        effectful = (call_id for call_id, call in calls.items() if call["name"].startswith(_EFFECT_TOOLS))
        calls = {call_id: calls[call_id] for call_id in effectful if call_id not in simulated}
        announced |= {call["args"]["what"] for call in calls.values()}
        for event in events:
            call = calls.get(event["data"].get("call_id", "")) if event["type"] == "tool_result" else None
            if call and event["data"]["status"] == "succeeded" and call["args"]["what"] not in done:
                yield run_id, f"{call['args']['what']} is told to be done, but isn't"
    changing = {line["what"] for line in found.effects if line["tool"] != "read_it"}
    for what in (done & changing) - announced:
        yield "", f"{what} was done, and nobody was told that it would be"


def every_effect_is_in_the_ledger(found: Observations) -> Iterator[tuple[str, str]]:
    """No call that may change something leaves before that is written down, and none stays open at the end."""
    intended_first = sorted(found.ledger, key=lambda row: row["state"] != "intended")
    rows = {row.get("idempotency_key") or row["key"]: row for row in intended_first}  # repeats of a call share a key
    for line in found.effects:
        row = rows.get(line["key"])
        if line["tool"] != "read_it" and (row is None or row["state"] == "intended"):
            yield row["run_id"] if row else "", f"{line['what']} {line['at']}, and the ledger has {row}"
    for row in found.ledger:
        if row["state"] == "dispatched":
            yield row["run_id"], f"{row['arguments']} is still on its way"


def every_call_is_answered(found: Observations) -> Iterator[tuple[str, str]]:
    for run_id, events in found.events_of.items():
        started = Counter(event["data"]["call_id"] for event in events if event["type"] == "tool_start")
        answered = Counter(event["data"]["call_id"] for event in events if event["type"] == "tool_result")
        for call_id in started.keys() | answered.keys():
            if (started[call_id], answered[call_id]) != (1, 1):
                yield run_id, f"call {call_id} was started {started[call_id]} times, answered {answered[call_id]} times"


def an_answer_belongs_to_its_call(found: Observations) -> Iterator[tuple[str, str]]:
    """A server that answers twice, late or under another id never answers a call with something else."""
    for run_id, events in found.events_of.items():
        calls = {event["data"]["call_id"]: event["data"] for event in events if event["type"] == "tool_start"}
        for event in events:
            call = calls.get(event["data"].get("call_id", "")) if event["type"] == "tool_result" else None
            if call and call["name"].startswith(_HOSTILE_TOOLS) and event["data"]["status"] == "succeeded":
                what, result = call["args"]["what"], event["data"]["result"]
                if result != f"look {what}: fine":
                    yield run_id, f"the call of {call['name']} about {what} was answered with {result!r}"


def every_task_that_begins_ends_once(found: Observations) -> Iterator[tuple[str, str]]:
    for run_id, events in found.events_of.items():
        begun = {event["data"]["path"] for event in events if event["type"] == "task_start"}
        ended = Counter(event["data"]["path"] for event in events if event["type"] == "task_result")
        for path in begun | ended.keys():
            if ended[path] != 1:
                yield run_id, f"task {path} ended {ended[path]} times"


def teams_work_only_while_their_task_is_open(found: Observations) -> Iterator[tuple[str, str]]:
    """What is told of the inside of a team comes between the start and the result of its task."""
    for run_id, events in found.events_of.items():
        open_tasks: set[str] = set()
        for event in events:
            path = event["data"].get("path", "")
            inside = f"{path}/" if event["type"] in _OF_A_STAR and path else path
            if not open_tasks.issuperset(tasks_around(inside)):
                yield run_id, f"event {event['seq']}, {event['type']} of {path}, came while only {open_tasks} were open"
            if event["type"] == "task_start":
                open_tasks.add(path)
            if event["type"] == "task_result":
                open_tasks.discard(path)


def no_checkpoint_of_an_ended_run_is_left(found: Observations) -> Iterator[tuple[str, str]]:
    for row in found.checkpoints:
        run = found.run_of.get(row["run_id"])
        if run is None or is_terminal(run["status"]):
            yield row["run_id"], f"{row['name']} has rows of it for the star {row['path'] or 'of the run'}"


def events_are_numbered_without_a_gap(found: Observations) -> Iterator[tuple[str, str]]:
    for row in found.runs:
        numbers = [event["seq"] for event in found.events_of.get(row["id"], ())]
        if numbers != list(range(1, row["seq"] + 1)):
            yield row["id"], f"has the events {numbers}, and its last one should be {row['seq']}"


def every_reader_receives_the_stored_events(found: Observations) -> Iterator[tuple[str, str]]:
    for reading in found.history.readings:
        yield from _told_otherwise(reading, found.events_of.get(reading.run_id, ()))


def _told_otherwise(reading: Reading, events: Sequence[Row]) -> Iterator[tuple[str, str]]:
    stored = {event["seq"]: (event["type"], event["data"]) for event in events}
    left_out = 0
    for event in reading.events:
        if event.type == "gap":
            left_out += event.id - event.data["from"]
        elif stored.get(event.id) != (event.type, event.data):
            yield reading.run_id, f"{reading.who} was told {event}, stored is {stored.get(event.id)}"
    if reading.run_id and not reading.done:
        yield reading.run_id, f"{reading.who} was never told the end"
    if reading.done and len(reading.events) + left_out != len(stored):
        yield reading.run_id, f"{reading.who} was told {len(reading.events)} of {len(stored)} events"


def done_is_the_last_event_and_occurs_once(found: Observations) -> Iterator[tuple[str, str]]:
    for row in found.runs:
        kinds = [event["type"] for event in found.events_of.get(row["id"], ())]
        if kinds.count("done") != 1 or kinds[-1] != "done":
            yield row["id"], f"tells {', '.join(kinds)}"
        elif found.events_of[row["id"]][-1]["data"]["status"] != row["status"]:
            yield row["id"], f"is {row['status']}, and told {found.events_of[row['id']][-1]['data']['status']}"


def no_run_fails_for_a_reason_that_nobody_foresaw(found: Observations) -> Iterator[tuple[str, str]]:
    for event in found.events:
        if event["type"] == "done" and event["data"].get("code") == "internal":
            yield event["run_id"], "failed with an error that nothing is prepared for: it is in the log of its worker"


def no_run_ends_because_of_the_model(found: Observations) -> Iterator[tuple[str, str]]:
    """The model fails for four seconds at most, and runs wait for it longer than that."""
    for event in found.events:
        data = event["data"]
        code = str(data.get("code")) if event["type"] == "done" else ""
        if code.startswith("llm_") or (code == "no_result" and "the endpoint answered" in str(data.get("degraded"))):
            yield event["run_id"], f"ended with {code}: {data.get('degraded')}"


def changes_of_a_run_are_contiguous(found: Observations) -> Iterator[tuple[str, str]]:
    """Status, fence, and the counts of events and batches go on from where they were, and the latter never back."""
    for run_id, changes in found.changes_of.items():
        for before, after in pairwise(changes):
            for name in ("status", "fence", "seq", "flushes"):
                if before[f"new_{name}"] != after[f"old_{name}"]:
                    yield run_id, f"{name} goes from {_short(before)} to {_short(after)}"
        for change in changes:
            if any(change[f"new_{name}"] < change[f"old_{name}"] for name in ("fence", "seq", "flushes")):
                yield run_id, f"goes back: {_short(change)}"


def only_the_lease_holder_writes(found: Observations) -> Iterator[tuple[str, str]]:
    """All that a fence wrote came from the one process that took it."""
    for run_id, changes in found.changes_of.items():
        holders: dict[int, str] = {}
        for change in changes:
            if change["new_fence"] > change["old_fence"]:
                holders[change["new_fence"]] = change["app"]
            holder = holders.get(change["new_fence"])
            if change["new_flushes"] > change["old_flushes"] and change["app"] != holder:
                yield run_id, f"was written by {change['app']}, but held by {holder}: {_short(change)}"


def rows_are_written_only_by_the_run_writer(found: Observations) -> Iterator[tuple[str, str]]:
    """Each row that belongs to a run came in a transaction that counted a batch, or in the one that accepted it."""
    flushed = {
        (change["run_id"], change["xid"]): change
        for change in found.changes
        if change["old_status"] is None or change["new_flushes"] == change["old_flushes"] + 1
    }
    for write in found.writes:
        flush = flushed.get((write["run_id"], write["xid"]))
        if flush is None:
            yield write["run_id"], f"{write['app']} wrote {write['what']} beside the writer"
        elif write["what"] == "events" and (write["first_seq"], write["last_seq"]) != (
            flush["old_seq"] + 1, flush["new_seq"],
        ):  # fmt: skip
            yield write["run_id"], f"events {write['first_seq']} to {write['last_seq']} came with {_short(flush)}"


def a_branch_has_one_tip_with_every_input_in_order(found: Observations) -> Iterator[tuple[str, str]]:
    runs = grouped(found.runs, "thread_id")
    states = grouped(found.states, "thread_id")
    for branch in found.branches:
        own = [row for row in states.get(branch["thread_id"], ()) if _on(row, branch)]
        if [row["position"] for row in own] != list(range(1, branch["tip"] + 1)):
            yield "", f"{_name(branch)} has {len(own)} states, and its tip is {branch['tip']}"
        line = sorted((row for row in runs.get(branch["thread_id"], ()) if _on(row, branch)), key=_arrival)
        said = [(row["run_id"], input_of(row)) for row in own if input_of(row) is not None]
        if Counter(said) != Counter((row["id"], row["input"]) for row in line):
            yield "", f"{_name(branch)} has not every input once: {said}"
        begun = [row["id"] for row in line if row["started_at"]]  # one that is cancelled in the line ends out of turn
        if [run_id for run_id, _ in said if run_id in begun] != begun:
            yield "", f"{_name(branch)} has not every input in the order of arrival: {said}"


def _on(row: Row, branch: Row) -> bool:
    return (row["tenant"], row["branch_id"]) == (branch["tenant"], branch["id"])


def _arrival(row: Row) -> int:
    return row["arrival"]


def _name(branch: Row) -> str:
    return f"{branch['tenant']}/{branch['thread_id']}/{branch['id']}"


def no_service_crashes_or_leaves_a_process(found: Observations) -> Iterator[tuple[str, str]]:
    for problems in found.services:
        yield "", problems


def tenants_are_isolated(found: Observations) -> Iterator[tuple[str, str]]:
    for table, tenant, text in found.tenant_texts:
        for other in TENANTS:
            if tenant in TENANTS and tenant != other and f"{other}-" in text:
                yield "", f"a row of {tenant} in {table} tells of {other}: {text[:300]}"
    for reading in found.history.readings:
        accepted = found.history.accepted[reading.run_id]
        others = [other for other in TENANTS if other != accepted.tenant]
        if any(f"{other}-" in str(event.data) for other in others for event in reading.events):
            yield reading.run_id, f"{reading.who} was told of another tenant"


def only_old_data_of_ended_runs_is_pruned(found: Observations) -> Iterator[tuple[str, str]]:
    """How a run ended stays, and so does a call of which nobody knows whether it was made."""
    for gone in found.gone:
        ended, row = found.run_of[gone["run_id"]]["end"], gone["row"]
        if ended is None or gone["time"] - ended < found.history.guarantees.prune_age:
            yield gone["run_id"], f"ended at {ended}, and was pruned at {gone['time']}: {row}"
        if (gone["name"], row.get("type")) == ("events", "done"):
            yield gone["run_id"], "isn't told to be done any more"
        if gone["name"] == "ledger" and row["state"] in ("dispatched", "in_doubt") and row["settled_at"] is None:
            yield gone["run_id"], f"nobody knows of {row['arguments']}, and it was forgotten"


def only_pruned_events_are_missing_from_streams(found: Observations) -> Iterator[tuple[str, str]]:
    pruned = {(gone["run_id"], gone["row"]["seq"]) for gone in found.gone if gone["name"] == "events"}
    for run in found.runs:
        gone = [event["seq"] for event in found.events_of[run["id"]] if (run["id"], event["seq"]) in pruned]
        if gone != list(range(1, run["trimmed"] + 1)):
            yield run["id"], f"is trimmed up to {run['trimmed']}, and {gone} are gone"
    for reading in found.history.readings:
        for gap in (event for event in reading.events if event.type == "gap"):
            kept = {seq for seq in range(gap.data["from"], gap.id + 1) if (reading.run_id, seq) not in pruned}
            if kept:
                yield reading.run_id, f"{reading.who} was told that {kept} are gone, which are there"


def artifacts_are_kept_whole(found: Observations) -> Iterator[tuple[str, str]]:
    """An artifact that a stream names is there, until what the run left is pruned."""
    kept = {(row["run_id"], row["hash"]): row["content"] for row in found.artifacts}
    gone = {(row["run_id"], row["row"]["hash"]) for row in found.gone if row["name"] == "run_artifacts"}
    for event in found.events:
        named = event["data"].get("artifact") if event["type"] == "tool_result" else None
        content = kept.get((event["run_id"], named))
        if named and (event["run_id"], named) not in gone and sha256(str(content).encode()).hexdigest() != named:
            yield (
                event["run_id"],
                f"{event['data']['call_id']} names the artifact {named}, and what is kept is {content}",
            )


def switched_off_targets_are_not_called(found: Observations) -> Iterator[tuple[str, str]]:
    """Two seconds, in which nothing was disturbed, after it was switched off; the same of keys that were revoked."""
    starts = [event for event in found.events if event["type"] == "tool_start"]
    calls: dict[str, list[Row]] = {}
    for start in (start for start in starts if start["data"]["name"].startswith(_EFFECT_TOOLS)):
        calls.setdefault(start["data"]["args"]["what"], []).append(start)
    arrivals = [line for line in found.effects if line["at"] == "arrived" and line["what"] in calls]
    for off in found.history.guarantees.switched_off:
        due = found.history.guarantees.due(off.since, SWITCH_SECONDS)
        for line in arrivals:
            made = calls[line["what"]]  # more than one where another proof repeats the cases of a team
            if due < line["time"] < off.until and all(_concerns(off, call, found) for call in made):
                late, run_id = line["time"] - off.since, made[0]["run_id"]
                yield run_id, f"{line['what']} was called {late:.1f} s after the {off.kind} {off.name} was off"


def _concerns(off: SwitchedOff, call: Row, found: Observations) -> bool:
    run, teams = found.run_of[call["run_id"]], found.teams_around(call["run_id"], call["data"]["path"])
    return off.concerns(run["tenant"], call["data"]["name"], run["principal"]["key_id"], teams)


def revoked_keys_are_refused(found: Observations) -> Iterator[tuple[str, str]]:
    guarantees = found.history.guarantees
    for off in (off for off in guarantees.switched_off if off.kind == "key"):
        closed, refused = guarantees.due(off.since, CLOSE_SECONDS), guarantees.due(off.since, SWITCH_SECONDS)
        for stream in guarantees.streams:
            if stream.key_id == off.name and stream.closed > closed:
                yield "", f"a stream ended {stream.closed - off.since:.1f} s after its key was revoked"
        for key_probe in guarantees.key_probes:
            if key_probe.key_id == off.name and key_probe.at > refused and key_probe.status not in (0, 401, 503):
                yield "", f"a key was told {key_probe.status} {key_probe.at - off.since:.1f} s after it was revoked"


def no_secret_is_exposed(found: Observations) -> Iterator[tuple[str, str]]:
    for name, secret in found.planted.items():
        forms = (secret, secret.encode().hex())
        places = Counter(place for place, text in found.texts if any(form in text for form in forms))
        for place, count in places.items():
            yield "", f"the {name} stands {count} times in: {place}"


def _short(change: Row) -> str:
    parts = (
        f"{name} {change[f'old_{name}']}→{change[f'new_{name}']}" for name in ("status", "fence", "seq", "flushes")
    )
    return f"{', '.join(parts)} by {change['app']}"


INVARIANTS: Sequence[Invariant] = (
    every_accepted_run_ends,
    a_repeated_request_begins_no_second_run,
    a_terminal_status_never_changes,
    one_effect_per_key,
    refused_calls_have_no_effect,
    reported_effects_match_recorded_effects,
    every_effect_is_in_the_ledger,
    every_call_is_answered,
    an_answer_belongs_to_its_call,
    every_task_that_begins_ends_once,
    teams_work_only_while_their_task_is_open,
    no_checkpoint_of_an_ended_run_is_left,
    events_are_numbered_without_a_gap,
    every_reader_receives_the_stored_events,
    done_is_the_last_event_and_occurs_once,
    no_run_fails_for_a_reason_that_nobody_foresaw,
    no_run_ends_because_of_the_model,
    changes_of_a_run_are_contiguous,
    only_the_lease_holder_writes,
    rows_are_written_only_by_the_run_writer,
    a_branch_has_one_tip_with_every_input_in_order,
    no_service_crashes_or_leaves_a_process,
    tenants_are_isolated,
    only_old_data_of_ended_runs_is_pruned,
    only_pruned_events_are_missing_from_streams,
    artifacts_are_kept_whole,
    switched_off_targets_are_not_called,
    revoked_keys_are_refused,
    no_secret_is_exposed,
    *BUILD_INVARIANTS,
)


def violations(found: Observations) -> list[Violation]:
    """Return everything that is wrong: what the callers noticed, then each invariant."""
    judged = [
        Violation(invariant.__name__.replace("_", " "), what, run_id)
        for invariant in INVARIANTS
        for run_id, what in invariant(found)
    ]
    return [*found.history.violations, *judged]
