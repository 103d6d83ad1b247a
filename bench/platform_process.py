"""The platform under measurement: `starling up` as its own process, with its own Postgres."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

import aiohttp
import orjson
import psutil
import psycopg

from bench.line_process import ProcessEndedError, line_of, python, running
from bench.resource_use import cpu_ms, postgres_cpu_ms
from starling.infra.postgres.embedded.server import attach
from tests.support.local_access import admin_headers

REQUEST = 'What is the tide level in the harbour "Callao", and on which shelf is the book "Moby Dick"?'
STARLING = "from starling.app.cli import main; main()"
_START_SECONDS = 600  # the first start lists up to 1,600 servers
_NEXT_XID = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"  # looks without taking one
_THREADS = count(1)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the platform keeps its data and finds its configuration."""

    folder: Path
    model_url: str
    extra: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def environment(self, port: int) -> dict[str, str]:
        return {
            "PORT": str(port),
            "STARLING_DATA_DIR": str(self.data),
            "STARLING_MCP_CONFIG": str(self.folder / "mcp.json"),
            "STARLING_MODEL": "openai:measured",
            "OPENAI_BASE_URL": f"{self.model_url}/v1",
            "OPENAI_API_KEY": "bench",
            "LOG_LEVEL": "WARNING",
            **self.extra,
        }


@dataclass(frozen=True, slots=True)
class Cpu:
    """Processor time in milliseconds: the server's own, and Postgres' with all its children, ended ones too."""

    server: float
    postgres: float

    def __sub__(self, other: "Cpu") -> "Cpu":
        return Cpu(self.server - other.server, self.postgres - other.postgres)


@dataclass(frozen=True, slots=True)
class Timing:
    """One run as its caller sees it, in milliseconds from the sending of the request."""

    first_event: float
    plan: float
    done: float


class Platform:
    """A running `starling up`."""

    def __init__(
        self,
        url: str,
        pid: int,
        database: str,
        session: aiohttp.ClientSession,
        seconds: Mapping[str, float],
        begun: float,
    ) -> None:
        self.begun = begun  # when its process was started, by `perf_counter`
        self.database = database
        self.seconds = seconds  # that each part of its start took
        self.url = url
        self._process = psutil.Process(pid)
        self._postgres = next(child for child in self._process.children() if child.name() == "postgres")
        self._connection = psycopg.connect(database, autocommit=True)
        self._session = session

    def close(self) -> None:
        self._connection.close()

    async def run(self, thread: str = "", **config: str) -> Timing:
        """Send the request, on a new thread if none is named, and read its stream to the end.

        Raises RuntimeError unless it succeeds.
        """
        begun = perf_counter()
        at: dict[str, float] = {}
        last = b""
        asked = {"input": REQUEST, "thread_id": thread or f"bench-{next(_THREADS)}", "config": config}
        async with self._session.post(f"{self.url}/v1/agent/run", json=asked) as response:
            async for line in response.content:
                if line.startswith(b"event: "):
                    at.setdefault(line[7:].strip().decode(), (perf_counter() - begun) * 1000)
                elif line.startswith(b"data: "):
                    last = line[6:]
        done: dict[str, Any] = orjson.loads(last) if last else {}
        if done.get("status") != "succeeded" or done["usage"]["tool_calls"] != 2:
            raise RuntimeError(f"the run didn't come to its answer: {last.decode() or response.status}")
        return Timing(at["run_started"], at["plan"], at["done"])

    async def health(self) -> float:
        """Return the milliseconds of a request that does nothing."""
        begun = perf_counter()
        async with self._session.get(f"{self.url}/health") as response:
            await response.read()
        return (perf_counter() - begun) * 1000

    def cpu(self) -> Cpu:
        """Return what was used so far."""
        return Cpu(cpu_ms(self._process), postgres_cpu_ms(self._postgres))

    def memory(self) -> float:
        """Return the megabytes that the server's own process holds."""
        return self._process.memory_info().rss / 2**20

    def write_transactions(self) -> int:
        """Return how many transaction ids were given out so far: one for each transaction that wrote."""
        row = self._connection.execute(_NEXT_XID).fetchone()
        assert row is not None
        return row[0]


def admin_session(platform: Platform, place: Place) -> aiohttp.ClientSession:
    """Return a session for the paths of a platform's API, with the rights of its machine's admin."""
    return aiohttp.ClientSession(platform.url, headers=admin_headers(place.data))


@asynccontextmanager
async def up(place: Place) -> AsyncGenerator[tuple[Platform, float]]:
    """Start the platform; gives it and the milliseconds until it was ready."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        begun = perf_counter()
        async with running(python("-c", STARLING, "up", "--json"), place.environment(port)) as process:
            await answered(session, f"{url}/ready", process)
            milliseconds = (perf_counter() - begun) * 1000
            database = attach(place.data)
            assert database is not None
            seconds: Mapping[str, float] = orjson.loads(await line_of(process))["seconds"]
            platform = Platform(url, process.pid, database, session, seconds, begun)
            try:
                yield platform, milliseconds
            finally:
                platform.close()


async def answered(session: aiohttp.ClientSession, url: str, process: asyncio.subprocess.Process) -> None:
    """Wait until an address answers with 200. Raises ProcessEndedError where its process ends before."""
    async with asyncio.timeout(_START_SECONDS):
        while process.returncode is None:
            try:
                async with session.get(url) as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientConnectionError:
                pass  # it doesn't listen yet
            await asyncio.sleep(0.005)
    raise ProcessEndedError(f"the process that should have answered at {url} ended with {process.returncode}")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
