"""The load test's arithmetic and options: which runs count, what a run costs, what makes no sense."""

from io import StringIO

import pytest
from rich.console import Console

from bench.callers import Outcome, Percentiles, Window
from bench.load import LoadReport, parse, show
from bench.resource_use import DatabaseSample, DatabaseUse, ProcessSample, ProcessUse, use_between


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [
        pytest.param([], None, id="no run"),
        pytest.param([7.0], Percentiles(7.0, 7.0, 7.0, 7.0), id="one run"),
        pytest.param([*map(float, range(101))], Percentiles(50.0, 95.0, 99.0, 100.0), id="many runs"),
    ],
)
def test_percentiles_are_of_all_runs(milliseconds: list[float], expected: Percentiles | None) -> None:
    assert Percentiles.of(milliseconds) == expected


def test_runs_that_end_before_or_after_the_measured_time_do_not_count() -> None:
    outcomes = [Outcome(9.0, 1.0), Outcome(11.0, 0.5), Outcome(12.0, 1.5), Outcome(21.0, 1.0, "HTTP 503")]

    window = Window.of(10.0, 20.0, outcomes)

    assert (window.runs_per_second, window.errors) == (0.2, {})
    assert window.latency == Percentiles(1000.0, 1450.0, 1490.0, 1500.0)


def test_failed_runs_are_counted_by_kind_and_not_as_runs() -> None:
    kinds = ["HTTP 429 rate_limited", "run failed", "HTTP 429 rate_limited", ""]

    window = Window.of(0.0, 2.0, [Outcome(1.0, 0.1, kind) for kind in kinds])

    assert list(window.errors.items()) == [("HTTP 429 rate_limited", 2), ("run failed", 1)]
    assert window.runs_per_second == 0.5


@pytest.mark.parametrize(
    ("cpu", "cpu_per_run"),
    [
        pytest.param((100.0, 180.0), 20.0, id="of this machine"),
        pytest.param((None, None), None, id="remote"),
    ],
)
def test_costs_of_the_database_are_those_of_a_run(
    cpu: tuple[float | None, float | None], cpu_per_run: float | None
) -> None:
    before = DatabaseSample(5_000, 1, 110, 70, 10_000, {"a": 3}, cpu[0])
    after = DatabaseSample(6_000, 3, 150, 98, 12_000, {"a": 7, "b": 2}, cpu[1])

    used = DatabaseUse.of(before, after, 4)

    assert used == DatabaseUse(cpu_per_run, 250.0, 0.5, 10.0, 7.0, 500.0, {"a": 1.0, "b": 0.5})


def test_processor_time_of_a_run_is_that_of_the_named_processes() -> None:
    before = [ProcessSample(name, 100.0, 90.0, 0.0) for name in ("api", "worker-1", "worker-2")]
    after = [ProcessSample("api", 900.0, 91.0, 0.0), *(ProcessSample(f"worker-{n}", 150.0, 95.0, 3.0) for n in (1, 2))]

    processes = use_between(before, after, 10.0)
    report = LoadReport(2, 4, 10.0, 20, 2.0, None, {}, None, None, processes)

    assert processes[:2] == [ProcessUse("api", 80.0, 91.0, 0.0), ProcessUse("worker-1", 5.0, 95.0, 3.0)]
    assert report.cpu_ms_per_run("worker-") == 5.0


def test_report_without_a_run_has_no_costs_of_one() -> None:
    processes = [ProcessUse("api", 80.0, None, None), ProcessUse("worker-1", 5.0, 95.0, 3.0)]
    printed = StringIO()

    show(LoadReport(1, 4, 10.0, 0, 0.0, None, {}, None, None, processes), Console(file=printed, width=100))

    lines = [" ".join(line.split()) for line in printed.getvalue().splitlines()]
    assert lines[-2:] == [
        "api 8 % of a core, memory n/a (root may read it)",
        "worker-1 0 % of a core, 95 MB, and 3 MB of MCP servers",
    ]
    assert "for a run" not in printed.getvalue()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--callers 0", "argument --callers: '0' is no whole number from 1 on"),
        ("--workers two", "argument --workers: 'two' is no whole number from 1 on"),
        ("--seconds 0", "argument --seconds: '0' is no number above 0"),
        ("--seconds inf", "argument --seconds: 'inf' is no number above 0"),
        ("--warm-up -1", "argument --warm-up: '-1' is no number from 0 on"),
        ("--delay-ms slow", "argument --delay-ms: 'slow' is no number"),
        ("--url 127.0.0.1:8000", "argument --url: '127.0.0.1:8000' is no http:// or https:// address"),
        ("--url http://", "argument --url: 'http://' is no http:// or https:// address"),
        ("--url http://a:b", "argument --url: 'http://a:b' is no http:// or https:// address"),
        ("--url http://a --workers 2", "are for a platform of its own: leave them out with --url"),
        ("--url http://a --runs-per-worker 2", "are for a platform of its own: leave them out with --url"),
        (
            "--url http://a --delay-ms 9",
            "--delay-ms is for the scripted model: give --serve-model, too, or leave it out",
        ),
        ("--url http://a --serve-model 9000", "argument --serve-model: '9000' is no HOST:PORT, such as 127.0.0.1:9000"),
        ("--database postgresql://a", "are for a platform that runs already: give its --url, too"),
        ("--serve-model a:1", "are for a platform that runs already: give its --url, too"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        parse(arguments.split())

    assert refused.value.code == 2
    assert message in capsys.readouterr().err
