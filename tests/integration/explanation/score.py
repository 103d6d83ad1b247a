"""Prints how many of the seeded causes are named first: `python -m tests.integration.explanation.score [--rows]`."""

import argparse
import asyncio
import time
from pathlib import Path

from starling.infra.postgres.embedded.server import EmbeddedPostgres
from starling.infra.postgres.schema import upgrade
from tests.integration.explanation.test_seeded_failures import FAILURES, SUCCESSES
from tests.support.open_folder import new_open_folder
from tests.support.seeded_runs import Explained, SeededRun, explain_seeded_runs

_ROWS = ("task_start", "tool_start", "tool_result", "reflection", "task_result", "warning", "error", "done")


def _print_rows(seen: Explained) -> None:
    for event in seen.stream.events:
        if event.type in _ROWS:
            kept = {name: value for name, value in event.data.items() if value not in (None, [], "", {})}
            print(f"      {event.seq} {event.type} {str(kept)[:260]}")


def _print_run(run: SeededRun, seen: Explained, *, rows: bool) -> None:
    mark = "ok   " if seen.found == run.cause else "WRONG"
    print(f"{mark} {run.name}: {run.cause or 'no cause'}, named: {seen.found or 'no cause'} [{seen.stream.status}]")
    if seen.found != run.cause or rows:
        for cause in seen.explanation.causes:
            print(f"      {cause.code}: {cause.text}")
    if rows:
        _print_rows(seen)


def main() -> None:
    parser = argparse.ArgumentParser(description="Score the explanations of seeded runs.")
    parser.add_argument("--rows", action="store_true", help="print the events of each run too")
    parser.add_argument("names", nargs="*", help="the runs; all by default")
    options = parser.parse_args()
    chosen = [run for run in (*FAILURES, *SUCCESSES) if not options.names or run.name in options.names]
    with new_open_folder() as folder, EmbeddedPostgres(folder, durable=False) as server:
        asyncio.run(upgrade(server.url))
        work = Path(folder) / "runs"
        work.mkdir()
        begun = time.monotonic()
        seen = asyncio.run(explain_seeded_runs(server.url, work, chosen))
        seconds = time.monotonic() - begun
    for run in chosen:
        _print_run(run, seen[run.name], rows=options.rows)
    failures, successes = ([run for run in chosen if (run.cause is None) is good] for good in (False, True))
    right = [sum(seen[run.name].found == run.cause for run in group) for group in (failures, successes)]
    print(f"{right[0]} of {len(failures)} causes named first; {right[1]} of {len(successes)} successes name none.")
    print(f"{seconds:.1f} s")


if __name__ == "__main__":
    main()
