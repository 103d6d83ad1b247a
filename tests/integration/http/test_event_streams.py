"""Event streams: pings, slow readers, and what a queued run waits for."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import aiohttp
import psutil
import pytest
import pytest_asyncio
from pydantic import SecretStr

from starling.app.container.database import Database
from starling.app.container.services import open_services
from starling.app.http import event_stream
from starling.app.http.listener import bind
from starling.app.runs.acceptance import RunRequest
from starling.app.services import Services
from starling.core.events.run_events import Done, Failure, Thinking, Usage
from starling.core.ids import new_id
from starling.core.runs import RunResult
from starling.core.settings.schema import Limits, Settings
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.writer import RunWriter
from tests.support.gateway_harness import wait_for
from tests.support.http_app import served_api
from tests.support.http_client import ApiClient
from tests.support.platform import CALLER
from tests.support.run_factories import claimed
from tests.support.sse import Event, read_events

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMITS = Limits(stream_write_seconds=5)
PIECE = "x" * 4_000
PIECES = 6_000  # more than all buffers on the way hold


@dataclass(frozen=True, slots=True)
class Quiet(ApiClient):
    """An API whose runs nobody works on but the test."""

    services: Services
    database_url: str

    async def accept(self) -> RunKey:
        return (await self.services.runs.acceptance.accept(CALLER, RunRequest(input="Hi.", thread_id=new_id()))).key

    async def writer(self, key: RunKey) -> RunWriter:
        return RunWriter(
            self.services.storage.engine, await claimed(self.services.runs.leases, key), self.services.storage.broadcast
        )

    async def end(self, writer: RunWriter, reply: str = "Done.", failure: Failure | None = None) -> None:
        status = "failed" if failure else "succeeded"
        if failure:
            writer.emit(failure)
        result = RunResult(status=status, reply=reply)
        await writer.end(result, Done(usage=Usage(), status=status, reply=reply), self.services.runs.repository)
        await writer.close()


@asynccontextmanager
async def a_quiet_api(url_of_database: str) -> AsyncGenerator[Quiet]:
    settings = Settings(database_url=SecretStr(url_of_database), limits=LIMITS)
    listener = bind("127.0.0.1", 0, write_seconds=LIMITS.stream_write_seconds)
    async with (
        open_services(settings, Database(url_of_database, url_of_database)) as services,
        served_api(settings, services, listener) as served,
    ):
        yield Quiet(served.url, served.client, services, url_of_database)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def quiet(module_database_url: str) -> AsyncGenerator[Quiet]:
    async with a_quiet_api(module_database_url) as quiet:
        yield quiet


@contextmanager
def a_reader_that_takes_nothing(url: str, path: str) -> Generator[socket.socket]:
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        reader.connect((host, int(port)))
        reader.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        yield reader


def is_served(reader: socket.socket) -> bool:
    """Whether this process still holds the other end of a reader's connection."""
    port = reader.getsockname()[1]
    return any(found.raddr and found.raddr.port == port for found in psutil.Process().net_connections("tcp"))


def what_is_left(reader: socket.socket) -> bytes:
    """Take what still comes, up to the end of the connection."""
    taken = bytearray()
    reader.settimeout(60)
    try:
        while piece := reader.recv(65_536):
            taken += piece
    except ConnectionResetError:
        pass
    return bytes(taken)


async def test_idle_stream_sends_keep_alive_comments(quiet: Quiet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "_PING_SECONDS", 0.2)
    key = await quiet.accept()
    lines: list[str] = []

    async with asyncio.timeout(60), quiet.client.get(f"/v1/runs/{key.id}/events") as response:
        while sum(line.startswith(":") for line in lines) < 3:
            lines.append((await response.content.readline()).decode())

    of_events = [line for line in lines if line.startswith(("id", "event"))]
    assert of_events == ["id: 1\n", "event: run_started\n"]


async def test_reader_that_reads_nothing_is_disconnected_and_others_continue(
    quiet: Quiet, caplog: pytest.LogCaptureFixture
) -> None:
    key = await quiet.accept()
    path = f"/v1/runs/{key.id}/events"
    with a_reader_that_takes_nothing(quiet.url, path) as sleeper:
        writing = asyncio.get_running_loop().create_task(_write_much(quiet, key))
        read = await _read_all(quiet, path)
        await writing
        assert [event.type for event in read] == ["run_started", *["thinking"] * PIECES, "done"]
        assert [event.id for event in read] == list(range(1, PIECES + 3))

        while is_served(sleeper):
            await quiet.get("/health")

        left = await asyncio.to_thread(what_is_left, sleeper)

    assert b"event: done" not in left
    await wait_for(lambda: any("took nothing" in record.getMessage() for record in caplog.records))
    assert not [record for record in caplog.records if record.exc_info]
    async with quiet.client.get(path, headers={"Last-Event-ID": str(PIECES + 1)}) as response:
        assert [event.type async for event in read_events(response)] == ["done"]


async def _read_all(api: Quiet, path: str) -> list[Event]:
    """Read up to the end, on a machine that may be so busy that the reader itself is taken for one that sleeps."""
    read: list[Event] = []
    while not read or read[-1].type != "done":
        last = str(read[-1].id) if read else ""
        with contextlib.suppress(aiohttp.ClientError):
            async with api.client.get(path, headers={"Last-Event-ID": last}) as response:
                async for event in read_events(response):
                    read.append(event)  # noqa: PERF401 - what came before a break counts
            assert read[-1].type == "done", "a stream ended in order, but not at its end"
    return read


async def _write_much(quiet: Quiet, key: RunKey) -> None:
    writer = await quiet.writer(key)
    for number in range(PIECES):
        writer.emit(Thinking(content=PIECE, message_id="m"))
        if number % 100 == 0:
            await writer.flush()
    await quiet.end(writer)


async def test_failed_run_names_its_failure(quiet: Quiet) -> None:
    key = await quiet.accept()
    failure = Failure(code="deadline_exceeded", message="The run's time is used up.")
    writer = await quiet.writer(key)
    writer.emit(Failure(code="outcome_unknown", message="Of one task.", task_id="t1"))
    await quiet.end(writer, failure.message, failure)

    state = await quiet.get(f"/v1/runs/{key.id}")

    assert state["status"] == "failed"
    assert state["why"] == {"code": failure.code, "message": failure.message}
