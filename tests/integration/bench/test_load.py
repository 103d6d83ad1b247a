"""The load test against HTTP: which kinds of failures callers count, and a short load on a real platform."""

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from io import StringIO
from pathlib import Path

import aiohttp
import psutil
import pytest
from aiohttp import web
from psycopg import AsyncConnection
from rich.console import Console

from bench.callers import Caller, open_session
from bench.line_process import HERE
from bench.load import load, parse, show
from bench.resource_use import postgres_cpu_ms, watched
from starling.infra.postgres.embedded.server import EmbeddedPostgres
from tests.support.command_line import new_workspace
from tests.support.gateway_harness import wait_for
from tests.support.http_server import start, stop

_PROBLEM = '{"status": 429, "code": "rate_limited"}'
_FAILED = (
    'event: error\ndata: {"type": "error", "code": "llm_server_error"}\n\n'
    'event: done\ndata: {"type": "done", "status": "failed"}\n\n'
)
_CANCELLED = 'event: done\ndata: {"type": "done", "status": "cancelled"}\n\n'
_QUOTING = 'event: thinking\ndata: {"type": "thinking", "content": "\\"done\\" and \\"error\\""}\n\n'
_LONG = f'event: done\ndata: {{"type": "done", "status": "succeeded", "reply": "{"x" * 2**20}"}}\n\n'
_OF_A_PROXY = 'data: ["done"]\n\ndata: "error\n\n'
_SUCCEEDED = 'event: done\ndata: {"type": "done", "status": "succeeded"}\n\n'


async def _answer(request: web.Request) -> web.Response:
    kind = (await request.json())["input"]
    if kind == "slow":
        await asyncio.sleep(60)
    answers = {"refused": (429, _PROBLEM), "broken": (502, "<html>"), "failed": (200, _FAILED)}
    answers |= {"long": (200, _LONG), "strange": (200, _OF_A_PROXY), "unread": (503, "[]")}
    answers |= {"cancelled": (200, _CANCELLED), "cut": (200, _QUOTING), "good": (200, _QUOTING + _SUCCEEDED)}
    status, text = answers[kind]
    return web.Response(status=status, text=text)


@pytest.fixture
async def address() -> AsyncGenerator[str]:
    """A platform behind a path, whose answers are the texts of requests."""
    app = web.Application()
    app.router.add_post("/starling/v1/agent/run", _answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    listening = await start(runner)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/starling/"
    await stop(runner, listening)


@pytest.fixture
async def session(address: str) -> AsyncGenerator[aiohttp.ClientSession]:
    async with open_session(address) as session:
        yield session


@pytest.mark.parametrize(
    ("request_text", "error"),
    [
        ("good", ""),
        ("long", ""),
        ("strange", "the stream ended before the run"),
        ("unread", "HTTP 503"),
        ("refused", "HTTP 429 rate_limited"),
        ("broken", "HTTP 502"),
        ("failed", "run failed llm_server_error"),
        ("cancelled", "run cancelled"),
        ("cut", "the stream ended before the run"),
        ("slow", "no end within 0.2 s"),
    ],
)
async def test_failures_of_runs_are_told_by_kind(session: aiohttp.ClientSession, request_text: str, error: str) -> None:
    limit = 0.2 if request_text == "slow" else 30.0

    assert (await Caller(session, request_text, limit).run()).error == error


async def test_platform_that_does_not_listen_is_an_error_of_the_connection() -> None:
    async with open_session("http://127.0.0.1:9") as nobody:
        outcome = await Caller(nobody, "good").run()

    assert outcome.error == "connection: ClientConnectorError"


async def test_load_without_a_first_run_ends_with_a_remedy() -> None:
    options = parse(["--url", "http://127.0.0.1:9"])

    with pytest.raises(SystemExit, match=r"The first run failed \(connection: .*\), .* at the address of --url\."):
        await load(options, Path(), Console())


async def test_two_callers_keep_a_running_platform_busy(database_url: str) -> None:
    printed = StringIO()
    with new_workspace(DATABASE_URL=database_url) as workspace, workspace.running("up", "--port", "0") as platform:
        arguments = ["--callers", "2", "--seconds", "5", "--warm-up", "0.2", "--input", "Hello", "--database"]

        report = await load(parse(["--url", platform.url, *arguments, database_url]), Path(), Console())

    show(report, Console(file=printed, width=100))
    assert report.errors == {}
    assert report.runs > 0
    assert report.database_per_run is not None
    assert report.database_per_run.wal_bytes > 1_000
    assert report.database_per_run.write_transactions > 2
    assert report.database_per_run.cpu_ms is not None
    assert report.connections is not None
    assert report.connections.by_application["starling-listen"] == 1
    assert "runs a second" in printed.getvalue()


async def test_most_connections_of_all_are_those_at_one_time(database_url: str) -> None:
    async with watched(database_url) as watch:
        for name in ("one", "two"):
            async with await AsyncConnection.connect(database_url, autocommit=True, application_name=name) as one:
                backend = psutil.Process(one.info.backend_pid)
                await wait_for(lambda name=name: name in watch.connections.by_application)
            await wait_for(lambda backend=backend: not backend.is_running())  # it ends some time after its connection

    assert watch.connections.by_application == {"one": 1, "two": 1}
    assert watch.connections.together == 1


async def test_looking_at_a_database_is_no_processor_time_of_it(
    postgres_server: EmbeddedPostgres, database_url: str
) -> None:
    postmaster = psutil.Process(postgres_server.pid)
    async with watched(database_url) as watch:
        before, all_before = (await watch.sample()).cpu_ms, postgres_cpu_ms(postmaster)
        while (used := postgres_cpu_ms(postmaster) - all_before) < 200:
            await watch.sample()
        after = (await watch.sample()).cpu_ms

    assert before is not None
    assert after is not None
    assert after - before < used / 2


def _take_interrupts() -> None:
    """Undo what a shell does to a job in the background: it ignores interrupts, and so do its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@asynccontextmanager
async def _loading(address: str, *arguments: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Give the process of a long load test once it sends its load."""
    options = ("--url", address, "--input", "good", "--callers", "1", "--seconds", "100", *arguments)
    command = (sys.executable, "-m", "bench.load", *options)
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=HERE.parent,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=_take_interrupts,
    )
    try:
        assert process.stdout is not None
        assert b"1 callers for" in await process.stdout.readline()
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_interrupted_load_ends_with_a_message(address: str) -> None:
    async with _loading(address) as load:
        load.send_signal(signal.SIGINT)
        _, said = await load.communicate()

    assert (load.returncode, said) == (130, b"Interrupted: nothing was measured.\n")


async def test_database_that_is_lost_under_load_ends_it_with_a_message(address: str, database_url: str) -> None:
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'load-test'"
    async with _loading(address, "--database", database_url) as load:
        async with await AsyncConnection.connect(database_url, autocommit=True) as other:
            await other.execute(end)
        _, said = await load.communicate()

    assert load.returncode == 1
    assert b"The database can't be used: " in said
    assert said.count(b"\n") == 1
