"""Readers that never read: how much memory they cost the API, wave after wave, and how they are disconnected."""

import asyncio
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import aiohttp
import psutil

from bench.figures import Figure
from bench.harness import BenchSetup
from bench.line_process import HERE, inherited
from bench.platform_process import STARLING, Place, answered, free_port
from starling.core.events.run_events import Done, Thinking, Usage
from starling.core.runs import RunResult
from starling.infra.postgres.embedded.server import EmbeddedPostgres
from starling.infra.postgres.engine import open_engine
from starling.infra.postgres.runs.acceptance import RunKey, RunRepository
from starling.infra.postgres.runs.broadcast import Broadcast
from starling.infra.postgres.runs.leases import Leases
from starling.infra.postgres.runs.writer import RunWriter
from starling.infra.postgres.schema import upgrade
from tests.support.run_factories import claimed, defer_nothing, new_run

NAMES = ("streams.silent_readers_mb",)
READERS, WAVES = 200, 10
EVENTS, EVENT_BYTES = 925, 9_700  # about 9 MB
WRITE_SECONDS = 5
_ACCEPTED_SECONDS, _SETTLED_SECONDS = 0.05, 0.5
_GRACE_SECONDS = 10  # beyond the limit, for a busy machine
_LINE = "took nothing"


async def measure(setup: BenchSetup) -> list[Figure]:
    """Measure the API's memory in the last wave of silent readers, next to the first.

    Raises RuntimeError where a reader is not disconnected, or not with one line in the log.
    """
    setup.say(f"{WAVES} waves of {READERS} readers that never read")
    limits = f'{{"stream_write_seconds": {WRITE_SECONDS}}}'
    place = setup.place("silent", STARLING_LIMITS=limits, STARLING_RATE_PER_MINUTE="1000000", LOG_FORMAT="json")
    with EmbeddedPostgres(place.data, explicit=True) as postgres:
        await upgrade(postgres.url)
        key = await _large_run(postgres.url)
        place = Place(place.folder, place.model_url, {**place.extra, "DATABASE_URL": postgres.url})
        log = place.folder / "api.log"
        memory = await _memory_by_wave(place, log, key)
    _check_log(log)
    text = ", ".join(f"{megabytes:.0f}" for megabytes in memory)
    return [Figure("streams.silent_readers_mb", memory[-1], "MB", memory[0], f"the first wave; all: {text}")]


async def _large_run(url: str) -> RunKey:
    """Write a run with many events and end it."""
    engine = open_engine(url)
    repository, new = RunRepository(engine, defer_nothing, cap=8), new_run()
    await repository.accept(new)
    claim = await claimed(Leases(engine, defer_nothing, repository.admit, graph_version=1), new.key)
    writer = RunWriter(engine, claim, Broadcast())
    for number in range(EVENTS):
        writer.emit(Thinking(content="x" * EVENT_BYTES, message_id=str(number)))
        if number % 50 == 0:
            await writer.flush()
    done = Done(usage=Usage(), status="succeeded", reply="")
    await writer.end(RunResult(status="succeeded", reply=""), done, repository)
    await writer.close()
    await engine.dispose()
    return new.key


async def _memory_by_wave(place: Place, log: Path, key: RunKey) -> list[float]:
    """Return the largest memory of the API's process in each wave, in megabytes."""
    port = free_port()
    with log.open("wb") as stderr:
        command = (sys.executable, "-c", STARLING, "serve")
        environment = inherited(place.environment(port))
        process = await asyncio.create_subprocess_exec(*command, cwd=HERE.parent, env=environment, stderr=stderr)
        try:
            async with aiohttp.ClientSession() as session:
                await answered(session, f"http://127.0.0.1:{port}/ready", process)
            return [await _wave(psutil.Process(process.pid), port, key) for _ in range(WAVES)]
        finally:
            process.terminate()
            await process.wait()


async def _wave(process: psutil.Process, port: int, key: RunKey) -> float:
    readers = [_silent_reader(port, key) for _ in range(READERS)]
    largest, until = 0.0, perf_counter() + WRITE_SECONDS + _GRACE_SECONDS
    try:
        while _served(process, readers) < READERS:  # the API has yet to accept them
            if perf_counter() > until:
                raise RuntimeError("the API didn't accept all silent readers")
            await asyncio.sleep(_ACCEPTED_SECONDS)
        while served := _served(process, readers):
            if perf_counter() > until:
                raise RuntimeError(f"{served} silent readers were not disconnected")
            largest = max(largest, process.memory_info().rss / 2**20)
            await asyncio.sleep(_SETTLED_SECONDS)
    finally:
        for reader in readers:
            reader.close()
    return largest


def _silent_reader(port: int, key: RunKey) -> socket.socket:
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    reader.connect(("127.0.0.1", port))
    reader.sendall(f"GET /v1/runs/{key.id}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    return reader


def _served(process: psutil.Process, readers: Sequence[socket.socket]) -> int:
    """Return how many of the readers' connections the API holds."""
    ports = {reader.getsockname()[1] for reader in readers}
    return sum(1 for found in process.net_connections("tcp") if found.raddr and found.raddr.port in ports)


def _check_log(log: Path) -> None:
    lines = log.read_text("utf-8").splitlines()
    told = sum(_LINE in line for line in lines)
    if told != READERS * WAVES or any("Traceback" in line for line in lines):
        raise RuntimeError(f"{told} lines in the log tell of {READERS * WAVES} silent readers, or one has a traceback")
