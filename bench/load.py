"""`python -m bench.load`: a load test. Callers keep a platform busy for a set time; prints what it did and its costs.

Without `--url` it starts a platform of its own: a Postgres, an API, workers, two MCP servers, and the scripted model,
which answers each call after a set delay. With `--url` it drives a platform that runs already, with the model and
the servers that that one has; `--serve-model` starts the scripted model for it.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import orjson
import psycopg
from rich.console import Console
from rich.table import Table
from yarl import URL

from bench.callers import Caller, Percentiles, drive, open_session
from bench.fleet import Fleet, open_fleet, processes_of
from bench.harness import BenchSetup, open_setup
from bench.line_process import ProcessEndedError, line_of, python, running
from bench.platform_process import REQUEST
from bench.resource_use import (
    DatabaseSample,
    DatabaseUse,
    DatabaseWatch,
    OpenConnections,
    ProcessSample,
    ProcessUse,
    database_error,
    sample_processes,
    use_between,
    watched,
)

_DELAY_MS, _RUNS_PER_WORKER = 200, 48
_NO_RUNS, _INTERRUPTED = 1, 130  # exit codes


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a load test found; times in milliseconds. Parts that could not be measured are None or empty.

    Costs of a run are what was used, divided by the runs that succeeded.
    """

    workers: int | None
    callers: int
    seconds: float
    runs: int
    runs_per_second: float
    latency_ms: Percentiles | None
    errors: Mapping[str, int]
    database_per_run: DatabaseUse | None
    connections: OpenConnections | None
    processes: Sequence[ProcessUse]

    def cpu_ms_per_run(self, name: str) -> float:
        """Return the processor time, for a run, of the processes whose names begin so. There must have been runs."""
        used = sum(process.cpu_ms_per_second for process in self.processes if process.name.startswith(name))
        return used * self.seconds / self.runs


@dataclass(frozen=True, slots=True)
class Target:
    """The platform under load, and what can be seen of it."""

    caller: Caller
    database: DatabaseWatch | None = None
    fleet: Fleet | None = None

    async def sample(self) -> tuple[DatabaseSample | None, Sequence[ProcessSample]]:
        """Return what was used until now."""
        processes = sample_processes(processes_of(self.fleet)) if self.fleet else ()
        return await self.database.sample() if self.database else None, processes


async def measure_load(target: Target, callers: int, *, warm_up: float, seconds: float) -> LoadReport:
    """Drive the platform and return what was found."""
    window, (database, processes), (database_after, processes_after) = await drive(
        target.caller, callers, warm_up=warm_up, seconds=seconds, sample=target.sample
    )
    runs = len(window.succeeded)
    use = DatabaseUse.of(database, database_after, runs) if runs and database and database_after else None
    return LoadReport(
        len(target.fleet.workers) if target.fleet else None,
        callers,
        window.seconds,
        runs,
        window.runs_per_second,
        window.latency,
        window.errors,
        use,
        target.database.connections if target.database else None,
        use_between(processes, processes_after, window.seconds),
    )


@asynccontextmanager
async def own_platform(
    setup: BenchSetup, name: str, callers: int, runs_per_worker: int
) -> AsyncGenerator[tuple[Fleet, Target]]:
    """Start an API over a Postgres of its own, without workers, whose limits don't slow its one tenant down."""
    limits = {"runs_per_worker": runs_per_worker, "tenant_share": 1, "runs_per_tenant": max(64, callers)}
    extra = {"STARLING_LIMITS": orjson.dumps(limits).decode(), "STARLING_RATE_PER_MINUTE": "1000000"}
    async with (
        open_fleet(setup, name, **extra) as fleet,
        watched(fleet.database) as database,
        open_session(fleet.url) as http,
    ):
        yield fleet, Target(Caller(http, REQUEST), database, fleet)


@asynccontextmanager
async def _running_platform(options: argparse.Namespace) -> AsyncGenerator[Target]:
    async with AsyncExitStack() as stack:
        if options.serve_model:
            model = await stack.enter_async_context(
                running(python("-m", "bench.benchmark_model", options.serve_model, str(options.delay_ms)))
            )
            await line_of(model)
        http = await stack.enter_async_context(open_session(options.url, options.key))
        database = await stack.enter_async_context(watched(options.database)) if options.database else None
        yield Target(Caller(http, options.input, options.timeout), database)


@asynccontextmanager
async def _new_platform(options: argparse.Namespace, folder: Path, console: Console) -> AsyncGenerator[Target]:
    async with (
        open_setup(folder, console) as setup,
        own_platform(setup, "load", options.callers, options.runs_per_worker) as (fleet, target),
    ):
        await setup.model.delay(options.delay_ms)
        await fleet.grow(options.workers or 1)
        yield Target(Caller(target.caller.session, options.input, options.timeout), target.database, fleet)


async def load(options: argparse.Namespace, folder: Path, console: Console) -> LoadReport:
    """Send the load that the options describe; return what was found. Raises SystemExit where the first run fails."""
    platform = _running_platform(options) if options.url else _new_platform(options, folder, console)
    async with platform as target:
        if error := (await target.caller.run()).error:
            raise SystemExit(f"The first run failed ({error}), so no load was sent.{_remedy(error)}")
        console.print(f"{options.callers} callers for {options.warm_up + options.seconds:g} s …")
        return await measure_load(target, options.callers, warm_up=options.warm_up, seconds=options.seconds)


def _remedy(error: str) -> str:
    if error.startswith("connection"):
        return " Check that the platform listens at the address of --url."
    if error.startswith(("HTTP 401", "HTTP 403")):
        return " Give a key with the scope `run`, in STARLING_API_KEY or as --key."
    if error.startswith("HTTP 429"):
        return " Raise STARLING_RATE_PER_MINUTE of the API for the load test."
    if error.startswith("run "):
        return " `starling run explain` on that platform says why."
    return ""


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options. Raises SystemExit with code 2, after a message, for those that make no sense."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.load", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--callers", type=_whole, default=16, help="how many send requests at a time (default: %(default)s)")
    add("--seconds", type=_positive, default=20, help="how long the load is measured (default: %(default)s)")
    add("--warm-up", type=_not_negative, default=5, help="seconds of load before that (default: %(default)s)")
    add("--timeout", type=_positive, default=120, help="seconds after which a run is an error (default: %(default)s)")
    add("--input", default=REQUEST, help="the text of each request (default: one that needs two MCP servers)")
    add("--delay-ms", type=_not_negative, help=f"how long each model call takes (default: {_DELAY_MS})")
    add("--json", action="store_true", help="print one JSON object instead of tables")
    own = parser.add_argument_group("a platform of its own")
    own.add_argument("--workers", type=_whole, help="how many workers to start (default: 1)")
    own.add_argument("--runs-per-worker", type=_whole, help=f"limits.runs_per_worker (default: {_RUNS_PER_WORKER})")
    other = parser.add_argument_group("a platform that runs already")
    other.add_argument("--url", type=_http_address, help="the address of its API")
    other.add_argument("--key", default=os.environ.get("STARLING_API_KEY", ""), help="default: $STARLING_API_KEY")
    other.add_argument("--database", help="postgresql:// address of its database, to measure what is used there")
    other.add_argument(
        "--serve-model",
        type=_host_and_port,
        metavar="HOST:PORT",
        help="serve the scripted model there, for its workers",
    )
    options = parser.parse_args(arguments)
    if options.url and (options.workers or options.runs_per_worker):
        parser.error("--workers and --runs-per-worker are for a platform of its own: leave them out with --url")
    if options.url and options.delay_ms is not None and not options.serve_model:
        parser.error("--delay-ms is for the scripted model: give --serve-model, too, or leave it out with --url")
    if not options.url and (options.database or options.serve_model):
        parser.error("--database and --serve-model are for a platform that runs already: give its --url, too")
    options.delay_ms = _DELAY_MS if options.delay_ms is None else options.delay_ms
    options.runs_per_worker = options.runs_per_worker or _RUNS_PER_WORKER
    return options


def _http_address(text: str) -> str:
    """Return the address of an API, which may have a path, with `/` at its end."""
    try:
        found = URL(text)
    except ValueError:
        found = URL()
    if found.scheme not in ("http", "https") or not found.host:
        raise argparse.ArgumentTypeError(f"{text!r} is no http:// or https:// address")
    return f"{text.rstrip('/')}/"


def _host_and_port(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no HOST:PORT, such as 127.0.0.1:9000")
    return text


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None


def _positive(text: str) -> float:
    if not 0 < _number(text) < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return _number(text)


def _not_negative(text: str) -> float:
    if not 0 <= _number(text) < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 on")
    return _number(text)


def show(report: LoadReport, console: Console) -> None:
    """Print the report as tables."""
    for title, rows in _tables(report):
        table = Table(
            "", "", title=title, title_justify="left", show_header=False, box=None, pad_edge=False, min_width=48
        )
        table.columns[1].justify = "right"
        for name, value in rows:
            table.add_row(name, value)
        console.print(table)


def _tables(report: LoadReport) -> Sequence[tuple[str, Sequence[tuple[str, str]]]]:
    latency = report.latency_ms
    runs = [("runs a second", f"{report.runs_per_second:.1f}"), ("runs", f"{report.runs} in {report.seconds:.1f} s")]
    if latency:
        names = ("latency p50", latency.p50), ("p95", latency.p95), ("p99", latency.p99), ("longest", latency.longest)
        runs += [(name, f"{value:.0f} ms") for name, value in names]
    errors = [(kind, str(number)) for kind, number in report.errors.items()] or [("none", "")]
    tables = [("Runs", runs), ("Errors", errors)]
    if report.database_per_run:
        tables.append(("Postgres, for a run that succeeded", _database_rows(report.database_per_run)))
    if report.connections:
        connections = [*sorted(report.connections.by_application.items()), ("all", report.connections.together)]
        tables.append(("Connections, the most at a time", [(name, str(number)) for name, number in connections]))
    if report.processes:
        kinds = ("api", "worker") if report.runs else ()
        rows = [(f"{kind}, CPU for a run", f"{report.cpu_ms_per_run(kind):.1f} ms") for kind in kinds]
        rows += [(process.name, _process(process)) for process in report.processes]
        tables.append(("Processes", rows))
    return tables


def _process(use: ProcessUse) -> str:
    memory = "memory n/a (root may read it)" if use.pss_mb is None else f"{use.pss_mb:.0f} MB"
    servers = f", and {use.servers_pss_mb:.0f} MB of MCP servers" if use.servers_pss_mb else ""
    return f"{use.cpu_ms_per_second / 10:.0f} % of a core, {memory}{servers}"


def _database_rows(use: DatabaseUse) -> list[tuple[str, str]]:
    return [
        ("CPU", "n/a" if use.cpu_ms is None else f"{use.cpu_ms:.1f} ms"),
        ("WAL", f"{use.wal_bytes / 1000:.1f} kB"),
        ("of that full page images", f"{use.full_page_images:.1f}"),
        ("transactions", f"{use.transactions:.1f}"),
        ("of them with writes", f"{use.write_transactions:.1f}"),
        ("stored, with indexes", f"{use.stored_bytes / 1000:.1f} kB"),
        *((f"notifications {channel}", f"{number:.1f}") for channel, number in use.notifications.items()),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    console = Console(stderr=options.json)
    with tempfile.TemporaryDirectory(prefix="starling-load-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)  # under root the embedded Postgres runs as somebody else
        report = _measured(options, folder, console)
    if options.json:
        print(orjson.dumps(asdict(report)).decode())
    else:
        show(report, console)
    if not report.runs and not report.errors:
        print(f"No run ended within the {report.seconds:.1f} measured seconds: give more --seconds.", file=sys.stderr)
    sys.exit(0 if report.runs else _NO_RUNS)


def _measured(options: argparse.Namespace, folder: Path, console: Console) -> LoadReport:
    """Return what was found. Raises SystemExit with a message where the load can't be sent or measured."""
    try:
        return asyncio.run(load(options, folder, console))
    except KeyboardInterrupt:
        print("Interrupted: nothing was measured.", file=sys.stderr)
        sys.exit(_INTERRUPTED)
    except (psycopg.Error, ProcessEndedError, ExceptionGroup) as error:
        cause = _first(error)
        if isinstance(cause, psycopg.Error):
            raise SystemExit(f"The database can't be used: {database_error(cause)}.") from None
        if isinstance(cause, ProcessEndedError):
            raise SystemExit(f"{cause}.") from None
        raise


def _first(error: Exception) -> Exception:
    """Return the error itself, or the first one of a group."""
    while isinstance(error, ExceptionGroup):
        error = cast("Exception", error.exceptions[0])
    return error


if __name__ == "__main__":
    main()
