"""What a round came to, for people."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from statistics import median

from tests.chaos.evidence import Evidence
from tests.chaos.round import Round

_SHOWN_RUNS = 5
_SHOWN = 40


def report(played: Round) -> str:
    """Return the summary of a round, and of each run with something wrong all that is known."""
    return "\n".join(_lines(played))


def _lines(played: Round) -> Iterator[str]:
    found, readings = played.evidence, played.evidence.books.readings
    yield f"seed {played.plan.seed}: {played.nemesis.done.total()} faults in {played.plan.seconds:.0f} s"
    yield f"  faults      {_counted(played.nemesis.done)}"
    yield f"  runs        {_counted(Counter(row['status'] for row in found.runs))}"
    yield f"  requests    {len(found.books.accepted)} accepted, refused with {found.books.refused}"
    yield f"  readers     {len(readings)}, over {sum(item.connections for item in readings)} connections"
    yield f"  effects     {_counted(Counter(line['tool'] for line in found.effects if line['at'] == 'done'))}"
    yield f"  ledger      {_counted(Counter(row['state'] for row in found.ledger))}"
    yield f"  artifacts   {len(found.artifacts)} are kept"
    yield f"  asked       {_counted(Counter(found.books.decided.values()))}"
    yield f"  restarts    {_spread(played.restarts)}"
    yield f"  take-overs  {_spread(list(_taken_over(found)))}"
    yield f"  switches    {_spread(_seen_off(found))} in force and watched"
    yield f"  cut off     {_spread(_cut_off(found))} after their key's end"
    yield f"  pruned      {_counted(Counter(row['name'] for row in found.gone)) or 'nothing'}"
    yield f"  took        {', '.join(f'{what} {seconds:.1f} s' for what, seconds in played.took.items())}"
    yield f"  searched    {_counted(Counter(place.partition(' ')[0] for place, _ in found.texts))}"
    yield f"  violations  {_counted(Counter(item.invariant for item in played.violations)) or 'none'}"
    yield from _details(played)


def _details(played: Round) -> Iterator[str]:
    for item in played.violations[:_SHOWN]:
        yield f"VIOLATED {item.invariant}: {item.run_id} {item.what}"
    for run_id in list(dict.fromkeys(item.run_id for item in played.violations if item.run_id))[:_SHOWN_RUNS]:
        yield from _told_of(played.evidence, run_id)
    if played.violations:
        yield "what was broken:"
        yield from played.nemesis.told


def _told_of(found: Evidence, run_id: str) -> Iterator[str]:
    yield f"run {run_id}: {_json(found.run_of.get(run_id))}"
    for event in found.events_of.get(run_id, ()):
        yield f"  event {event['seq']} {event['type']} {_json(event['data'])}"
    for change in found.changes_of.get(run_id, ()):
        yield f"  change {_json(change)}"
    for row in found.ledger:
        if row["run_id"] == run_id:
            yield f"  ledger {_json(row)}"
    run = found.books.accepted.get(run_id)
    for line in found.effects:
        if run and line["what"].startswith(f"{run.order.token}."):
            yield f"  effect {_json(line)}"


def _taken_over(found: Evidence) -> Iterator[float]:
    """Yield for each life after the first of a running run the seconds since the last thing written before."""
    for changes in found.changes_of.values():
        for before, after in pairwise(changes):
            if after["old_status"] == "running" and after["new_fence"] > after["old_fence"]:
                yield (after["at"] - before["at"]).total_seconds()


def _seen_off(found: Evidence) -> Sequence[float]:
    promises = found.books.promises
    return [promises.seen(halt) for halt in promises.halts if halt.kind != "key" and promises.seen(halt)]


def _cut_off(found: Evidence) -> Sequence[float]:
    """Return for each stream that was open when its key was revoked how many seconds later it ended."""
    since = {halt.name: halt.since for halt in found.books.promises.halts if halt.kind == "key"}
    streams = [stream for stream in found.books.promises.streams if stream.key_id in since]
    return [stream.closed - since[stream.key_id] for stream in streams if stream.closed > since[stream.key_id]]


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def _spread(seconds: Sequence[float]) -> str:
    if not seconds:
        return "none"
    return f"{len(seconds)}, median {median(seconds):.1f} s, at most {max(seconds):.1f} s"


def _json(value: object) -> str:
    return json.dumps(value, default=lambda item: item.isoformat() if isinstance(item, datetime) else str(item))
