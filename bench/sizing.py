"""`python -m bench.sizing`: what 10, 100 and 1,000 workers need, calculated from the figures of `bench.run deploy`.

Prints two tables in Markdown: the measured costs, and what follows from them. `--write` puts them into the guide on
deploying. The assumptions are the constants below; everything else is measured.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from bench.line_process import HERE

RUNS_PER_WORKER_SECOND = 4.0  # 48 runs at a time that take 12 s each: four model calls of 3 s, one after another
RENEWALS_PER_SECOND = 3 / 15  # three in the time of a lease
CORE_SHARE = 0.6  # of a core that an API process may use, so that it answers at once
BEGIN, END = "<!-- measured figures -->\n", "<!-- end of measured figures -->\n"
GUIDE = HERE.parent / "docs" / "guides" / "deploying.md"
_RESULTS = HERE / "results.jsonl"


@dataclass(frozen=True, slots=True)
class PlannedFleet:
    """So many workers at the assumed load, over the costs that were measured (see `NAMES` of `deployment`)."""

    workers: int
    costs: Mapping[str, float]

    @property
    def runs(self) -> float:
        """Return the runs a second."""
        return self.workers * RUNS_PER_WORKER_SECOND

    @property
    def apis(self) -> int:
        """Return how many API processes there are, at least two."""
        return max(2, ceil(self.runs * self.costs["api_cpu_ms_per_run"] / 1000 / CORE_SHARE))

    @property
    def processes(self) -> int:
        return self.workers + self.apis

    @property
    def worker_cores(self) -> float:
        return self.runs * self.costs["worker_cpu_ms_per_run"] / 1000

    @property
    def worker_gigabytes(self) -> float:
        return self.workers * self.costs["worker_memory_mb"] / 1024

    @property
    def postgres_cores(self) -> float:
        """Return the cores that runs and idle polling use, without what notifications cost the listeners."""
        idle = self.processes * self.costs["idle_postgres_ms_per_s"]
        return (self.runs * self.costs["postgres_cpu_ms_per_run"] + idle) / 1000

    @property
    def listener_cores(self) -> float:
        """Return the cores of Postgres for passing notifications on: each wakes the connection of every process."""
        microseconds = self.runs * self.costs["notifications_per_run"] * self.costs["notify_us_per_listener"]
        return microseconds * self.processes / 1_000_000

    @property
    def notifying_commits(self) -> float:
        """Return the commits a second that notify and wait for the disk, one after another: that of each new run."""
        return self.runs

    @property
    def lease_renewals(self) -> float:
        """Return the statements a second that renew leases: one of each worker for all its runs."""
        return self.workers * RENEWALS_PER_SECOND

    @property
    def wal_megabytes(self) -> float:
        return self.runs * self.costs["wal_kb_per_run"] / 1000

    @property
    def stored_gigabytes_a_day(self) -> float:
        return self.runs * self.costs["stored_kb_per_run"] * 86_400 / 1_000_000

    @property
    def connections(self) -> float:
        return self.processes * self.costs["connections_per_worker"]

    @property
    def idle_transactions(self) -> float:
        return self.processes * self.costs["idle_transactions_per_s"]


ROWS: Sequence[tuple[str, str, Callable[[PlannedFleet], float]]] = (
    ("runs a second", "workers × 4", lambda fleet: fleet.runs),
    ("cores of the workers", "runs × CPU of a worker", lambda fleet: fleet.worker_cores),
    ("memory of the workers, GB", "workers × memory, without MCP servers", lambda fleet: fleet.worker_gigabytes),
    ("API processes", "runs × CPU of the API ÷ 0.6, at least 2", lambda fleet: fleet.apis),
    ("connections to Postgres", "processes × connections", lambda fleet: fleet.connections),
    ("cores of Postgres for runs", "runs × CPU of Postgres + polling", lambda fleet: fleet.postgres_cores),
    (
        "cores of Postgres for listeners, at most",
        "notifications × processes × cost of one",
        lambda fleet: fleet.listener_cores,
    ),
    ("durable commits that notify, a second", "runs × 1", lambda fleet: fleet.notifying_commits),
    ("WAL, MB a second", "runs × WAL", lambda fleet: fleet.wal_megabytes),
    ("stored, GB a day", "runs × stored bytes × 86,400 s", lambda fleet: fleet.stored_gigabytes_a_day),
    ("lease renewals a second", "workers × 3 ÷ 15 s", lambda fleet: fleet.lease_renewals),
    ("transactions of polling a second", "processes × idle transactions", lambda fleet: fleet.idle_transactions),
)
COSTS: Mapping[str, str] = {
    "worker_cpu_ms_per_run": "CPU of a worker for a run, ms",
    "api_cpu_ms_per_run": "CPU of the API for a run and its stream, ms",
    "postgres_cpu_ms_per_run": "CPU of Postgres for a run, ms",
    "wal_kb_per_run": "WAL of a run, kB",
    "stored_kb_per_run": "stored by a run, with indexes, kB",
    "write_transactions_per_run": "transactions of a run that write",
    "notifications_per_run": "notifications of a run",
    "connections_per_worker": "connections of a worker with 48 slots, the most at a time",
    "worker_memory_mb": "memory (PSS) of a worker, MB",
    "idle_transactions_per_s": "transactions a second of a process without work",
    "idle_postgres_ms_per_s": "CPU of Postgres a second for a process without work, ms",
    "notify_us_per_listener": "CPU of Postgres for a notification, for each listening process, µs",
    "runs_per_second_1_worker": "runs a second, 1 worker with 4 slots",
    "runs_per_second_2_workers": "runs a second, 2 workers with 4 slots each",
    "runs_per_second_4_workers": "runs a second, 4 workers with 4 slots each",
    "runs_per_second_full_worker": "runs a second, 1 worker with 48 slots",
}


def measured(lines: Sequence[str]) -> Mapping[str, float]:
    """Return the figures that are needed, by name. Raises SystemExit where one wasn't measured."""
    found = {line["name"]: float(line["value"]) for line in map(json.loads, lines)}
    if missing := [name for name in COSTS if f"deploy.{name}" not in found]:
        raise SystemExit(f"There is no figure deploy.{missing[0]}: `python -m bench.run deploy` measures it.")
    return {name: found[f"deploy.{name}"] for name in COSTS}


def tables(costs: Mapping[str, float]) -> str:
    """Return the measured costs, and what 10, 100 and 1,000 workers need."""
    fleets = [PlannedFleet(workers, costs) for workers in (10, 100, 1_000)]
    cost_rows = [f"| {text} | {_number(costs[name])} |" for name, text in COSTS.items()]
    rows = [
        f"| {name} | {formula} | {' | '.join(_number(value(fleet)) for fleet in fleets)} |"
        for name, formula, value in ROWS
    ]
    return "\n".join(
        [
            "| measured | |",
            "| --- | ---: |",
            *cost_rows,
            "",
            "| calculated | from | 10 workers | 100 workers | 1,000 workers |",
            "| --- | --- | ---: | ---: | ---: |",
            *rows,
            "",
        ]
    )


def written(page: str, text: str) -> str:
    """Return the page with `text` between its two marks. Raises SystemExit where they are missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"The page has no place for the tables: the lines {BEGIN.strip()} and {END.strip()}.")
    return f"{before}{begin}\n{text}\n{end}{after}"


def _number(value: float) -> str:
    """Return three digits that count, and whole numbers as such."""
    if isinstance(value, int):
        return f"{value:,}"
    digits = max(0, 2 - len(str(int(abs(value)))) + 1) if value < 100 else 0
    return f"{value:,.{digits}f}"


def main(arguments: Sequence[str] | None = None, results: Path = _RESULTS, guide: Path = GUIDE) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.sizing", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"put the tables into {guide.name}")
    options = parser.parse_args(arguments)
    text = tables(measured(results.read_text("utf-8").splitlines() if results.exists() else []))
    if options.write:
        guide.write_text(written(guide.read_text("utf-8"), text), "utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
