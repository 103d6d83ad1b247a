"""The report of an experiment."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from statistics import median

from tests.chaos.client_history import Violation
from tests.chaos.experiment import ExperimentResult
from tests.chaos.observations import Observations
from tests.chaos.workload import CLERKS, DESK

_SHOWN_RUNS = 5
_SHOWN = 40
_SHOWN_ERRORS = 5  # of each service
_LAST_LINES = 20  # of the log of each service


def report(result: ExperimentResult) -> str:
    """Return a summary, and for each run that violates an invariant everything known about it."""
    return "\n".join(_lines(result))


def _lines(result: ExperimentResult) -> Iterator[str]:
    found, readings = result.observations, result.observations.history.readings
    yield f"seed {result.plan.seed}: {result.nemesis.done.total()} faults in {result.plan.seconds:.0f} s"
    yield f"  faults      {_counted(result.nemesis.done)}"
    yield f"  runs        {_counted(Counter(row['status'] for row in found.runs))}"
    codes = (event["data"]["code"] for event in found.events if event["type"] == "done")
    yield f"  not done    {_counted(Counter(filter(None, codes))) or 'none'}"
    yield f"  teams       {_counted(Counter(_team_tasks(found))) or 'none worked'}"
    yield f"  builds      {_counted(Counter(_builds(found))) or 'none'}"
    built = Counter(row["state"] for row in found.versions if row["built_by"])
    yield f"  versions    {_counted(built) or 'none built'}"
    yield f"  requests    {len(found.history.accepted)} accepted, refused with {found.history.refused}"
    doors = Counter(run.path.partition("crew")[0] for run in found.history.accepted.values())
    yield f"  accepted by {_counted(doors)}"
    yield f"  readers     {len(readings)}, over {sum(item.connections for item in readings)} connections"
    yield f"  effects     {_counted(Counter(line['tool'] for line in found.effects if line['at'] == 'done'))}"
    yield f"  ledger      {_counted(Counter(row['state'] for row in found.ledger))}"
    yield f"  artifacts   {len(found.artifacts)} are kept"
    yield f"  asked       {_counted(Counter(found.history.decisions.values()))}"
    yield f"  restarts    {_spread(result.restarts)}"
    yield f"  take-overs  {_spread(list(_taken_over(found)))}"
    yield f"  switches    {_spread(_switched_off_seconds(found))} in force and watched"
    yield f"  cut off     {_spread(_stream_close_seconds(found))} after their key's end"
    yield f"  pruned      {_counted(Counter(row['name'] for row in found.gone)) or 'nothing'}"
    yield f"  took        {', '.join(f'{what} {seconds:.1f} s' for what, seconds in result.took.items())}"
    yield f"  searched    {_counted(Counter(place.partition(' ')[0] for place, _ in found.texts))}"
    yield f"  violations  {_counted(Counter(item.invariant for item in result.violations)) or 'none'}"
    if result.violations:
        yield "faults:"
        yield from result.nemesis.log
        yield described(result.violations, found)


def described(violations: Sequence[Violation], found: Observations) -> str:
    """Return the violations, everything known about their runs, and the errors and last lines of the services' logs."""
    return "\n".join(_description(violations, found))


def _description(violations: Sequence[Violation], found: Observations) -> Iterator[str]:
    for run_id in list(dict.fromkeys(item.run_id for item in violations if item.run_id))[:_SHOWN_RUNS]:
        yield from _run_details(found, run_id)
    for place, text in found.texts:
        if place.startswith("log "):
            yield from _log_details(place, text.splitlines())
    for item in violations[:_SHOWN]:  # last, as reports of CI are cut at their beginning
        yield f"VIOLATED {item.invariant}: {item.run_id} {item.what}"


def _run_details(found: Observations, run_id: str) -> Iterator[str]:
    yield f"run {run_id}: {_json(found.run_of.get(run_id))}"
    for event in found.events_of.get(run_id, ()):
        yield f"  event {event['seq']} {event['type']} {_json(event['data'])}"
    for change in found.changes_of.get(run_id, ()):
        yield f"  change {_json(change)}"
    for row in found.ledger:
        if row["run_id"] == run_id:
            yield f"  ledger {_json(row)}"
    run = found.history.accepted.get(run_id)
    for line in found.effects:
        if run and line["what"].startswith(f"{run.planned.token}."):
            yield f"  effect {_json(line)}"


def _log_details(place: str, lines: Sequence[str]) -> Iterator[str]:
    """Yield the last errors of a log with their tracebacks, then its last lines."""
    yield f"{place}, errors:"
    for line in [line for line in lines if _level(line) in ("error", "critical")][-_SHOWN_ERRORS:]:
        yield from f"  {line}".replace("\\n", "\n").splitlines()  # tracebacks are strings in JSON
    yield f"{place}, last lines:"
    yield from (f"  {line}" for line in lines[-_LAST_LINES:])


def _level(line: str) -> str:
    """Return the level of a line of a log; that of a line that is no JSON, such as of a crash, is `error`."""
    try:
        return json.loads(line)["level"]
    except (ValueError, LookupError, TypeError):
        return "error"


def _team_tasks(found: Observations) -> Iterator[str]:
    """Yield the status of each task that a team worked on, by how many teams it is inside."""
    teams = {DESK, CLERKS}
    for event in found.events:
        if event["type"] == "task_result" and event["data"]["agent"] in teams:
            inside = " inside a team" if "/" in event["data"]["path"] else ""
            yield f"{event['data']['status']}{inside}"


def _builds(found: Observations) -> Iterator[str]:
    """Yield the kind and status of each build, and the decision on each activation."""
    for run in found.runs:
        if run["build"]:
            yield f"{run['build']['kind']} {run['status']}"
    for approved in found.history.activations.values():
        yield "activation approved" if approved else "activation refused"


def _taken_over(found: Observations) -> Iterator[float]:
    """Yield, for each takeover of a running run, the seconds since its last write."""
    for changes in found.changes_of.values():
        for before, after in pairwise(changes):
            if after["old_status"] == "running" and after["new_fence"] > after["old_fence"]:
                yield (after["at"] - before["at"]).total_seconds()


def _switched_off_seconds(found: Observations) -> Sequence[float]:
    guarantees = found.history.guarantees
    return [guarantees.seen(off) for off in guarantees.switched_off if off.kind != "key" and guarantees.seen(off)]


def _stream_close_seconds(found: Observations) -> Sequence[float]:
    """Return, for each stream open when its key was revoked, the seconds until it ended."""
    since = {off.name: off.since for off in found.history.guarantees.switched_off if off.kind == "key"}
    streams = [stream for stream in found.history.guarantees.streams if stream.key_id in since]
    return [stream.closed - since[stream.key_id] for stream in streams if stream.closed > since[stream.key_id]]


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def _spread(seconds: Sequence[float]) -> str:
    if not seconds:
        return "none"
    return f"{len(seconds)}, median {median(seconds):.1f} s, at most {max(seconds):.1f} s"


def _json(value: object) -> str:
    return json.dumps(value, default=lambda item: item.isoformat() if isinstance(item, datetime) else str(item))
