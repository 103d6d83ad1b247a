"""What many workers need, from the costs of one: the calculation, and where its result is written."""

import json
from pathlib import Path

import pytest

from bench.deployment import NAMES
from bench.sizing import BEGIN, COSTS, END, GUIDE, ROWS, PlannedFleet, main, measured, tables, written

_COSTS = dict.fromkeys(COSTS, 10.0) | {"notify_us_per_listener": 5.0, "connections_per_worker": 21.0}


def _lines(**changed: float) -> list[str]:
    return [json.dumps({"name": f"deploy.{name}", "value": value}) for name, value in (_COSTS | changed).items()]


def test_needs_of_a_hundred_workers_follow_from_the_costs() -> None:
    needs = {name: round(value(PlannedFleet(100, _COSTS)), 3) for name, _, value in ROWS}

    assert needs == {
        "runs a second": 400,
        "cores of the workers": 4,
        "memory of the workers, GB": 0.977,
        "API processes": 7,
        "connections to Postgres": 107 * 21,
        "cores of Postgres for runs": 4 + 1.07,
        "cores of Postgres for listeners, at most": 400 * 10 * 107 * 5e-6,
        "durable commits that notify, a second": 400,
        "WAL, MB a second": 4,
        "stored, GB a day": 345.6,
        "lease renewals a second": 20,
        "transactions of polling a second": 1_070,
    }


def test_every_cost_is_a_figure_that_is_measured() -> None:
    assert {f"deploy.{name}" for name in COSTS} <= set(NAMES)


def test_cost_that_was_not_measured_is_named() -> None:
    with pytest.raises(SystemExit, match=r"no figure deploy\.wal_kb_per_run: `python -m bench.run deploy`"):
        measured([line for line in _lines() if "wal" not in line])


def test_tables_are_written_between_their_marks(tmp_path: Path) -> None:
    results, guide = tmp_path / "results.jsonl", tmp_path / "page.md"
    results.write_text("\n".join(_lines(worker_cpu_ms_per_run=12.34)))
    guide.write_text(f"before\n{BEGIN}old\n{END}after\n")

    main(["--write"], results, guide)

    page = guide.read_text()
    assert page.startswith(f"before\n{BEGIN}")
    assert page.endswith(f"{END}after\n")
    assert "| CPU of a worker for a run, ms | 12.3 |" in page
    assert "old" not in page


def test_page_without_marks_is_not_changed() -> None:
    with pytest.raises(SystemExit, match="no place for the tables"):
        written("text\n", "new")


def test_guide_has_the_rows_that_are_calculated() -> None:
    between = GUIDE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0]
    titles = [line.split("|")[1] for line in tables(_COSTS).splitlines() if line]

    assert [line.split("|")[1] for line in between.splitlines() if line] == titles
