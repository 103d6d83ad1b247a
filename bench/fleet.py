"""An API and workers as processes of their own over one Postgres, as on several machines."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

import aiohttp
import psutil

from bench.harness import BenchSetup
from bench.line_process import python, running
from bench.platform_process import REQUEST, STARLING, Place, answered, free_port
from starling.infra.postgres.embedded.server import EmbeddedPostgres
from starling.infra.postgres.schema import upgrade

_THREADS = count(1)


@dataclass(frozen=True, slots=True)
class Fleet:
    """An API and the workers that were started so far. Connections of a process have its name in Postgres."""

    url: str
    database: str
    place: Place
    session: aiohttp.ClientSession
    api: psutil.Process
    stack: AsyncExitStack
    workers: list[psutil.Process] = field(default_factory=list[psutil.Process])

    async def run(self, prefix: str) -> None:
        """Send the request on a new thread and wait for its end. Raises RuntimeError unless it succeeds."""
        asked = {"input": REQUEST, "thread_id": f"{prefix}-{next(_THREADS)}"}
        async with self.session.post(f"{self.url}/v1/agent/run", json=asked) as response:
            stream = await response.read()
        if b'"status":"succeeded"' not in stream.replace(b" ", b""):
            raise RuntimeError(f"the run didn't come to its answer: {stream[-500:].decode()}")

    async def add_worker(self) -> None:
        """Run one more worker, from now until the end of the fleet; returns when it is ready."""
        port = free_port()
        named = {"DATABASE_URL": _named(self.database, f"worker-{len(self.workers) + 1}")}
        environment = {**self.place.environment(0), **named, "STARLING_WORKER_PORT": str(port)}
        process = await self.stack.enter_async_context(running(python("-c", STARLING, "worker"), environment))
        await answered(self.session, f"http://127.0.0.1:{port}/ready", process)
        self.workers.append(psutil.Process(process.pid))

    async def grow(self, workers: int) -> None:
        """Add workers until there are so many."""
        while len(self.workers) < workers:
            await self.add_worker()


@asynccontextmanager
async def open_fleet(setup: BenchSetup, name: str, **extra: str) -> AsyncGenerator[Fleet]:
    """Start Postgres and an API, without a worker."""
    place = setup.place(name, **extra)
    with EmbeddedPostgres(place.data, explicit=True) as postgres:
        await upgrade(postgres.url)
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        environment = {**place.environment(port), "DATABASE_URL": _named(postgres.url, "api")}
        async with AsyncExitStack() as stack:
            session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
            await stack.enter_async_context(session)
            process = await stack.enter_async_context(running(python("-c", STARLING, "serve"), environment))
            await answered(session, f"{url}/ready", process)
            yield Fleet(url, postgres.url, place, session, psutil.Process(process.pid), stack)


def _named(url: str, name: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}application_name={name}"


def processes_of(fleet: Fleet) -> Sequence[tuple[str, psutil.Process]]:
    """Return the processes by name: `api`, `worker-1` and so on."""
    return [("api", fleet.api), *((f"worker-{number}", worker) for number, worker in enumerate(fleet.workers, start=1))]
