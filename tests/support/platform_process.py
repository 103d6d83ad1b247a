"""`starling up` as a real process: started, asked, killed and started again."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp
import psutil

from tests.support.command_server import Command, command_server
from tests.support.local_access import admin_headers
from tests.support.sse import Event, read_events

_START_SECONDS = 120
_END_SECONDS = 60


@dataclass(slots=True)
class PlatformProcess:
    """One platform over its lives. `mcp_servers` is the content of its `mcpServers` file."""

    folder: Path
    mcp_servers: Mapping[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    process: Command | None = None
    address: str = ""
    started: dict[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    @asynccontextmanager
    async def running(
        cls, folder: Path, mcp_servers: Mapping[str, Any], environment: Mapping[str, str]
    ) -> AsyncGenerator[Self]:
        """Give a platform that runs, and end whatever is left of it afterwards."""
        platform = cls(folder, mcp_servers, environment)
        await platform.start()
        try:
            yield platform
        finally:
            await platform.end()

    async def start(self) -> None:
        """Start it, again if it was killed, and wait until it listens."""
        file = self.folder / "mcp.json"
        file.write_text(json.dumps({"mcpServers": self.mcp_servers}))
        inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        self.process = await asyncio.to_thread(
            command_server().start,
            ("up", "--port", "0", "--json", "--mcp-config", file),
            folder=self.folder,
            environment=inherited
            | {"LOG_LEVEL": "WARNING", "STARLING_DATA_DIR": str(self.folder / "data")}
            | dict(self.environment),
        )
        line = await asyncio.wait_for(asyncio.to_thread(self.process.stdout.readline), _START_SECONDS)
        assert line, self.process.stderr.read()
        self.started = json.loads(line)
        self.address = self.started["address"]

    def client(self) -> aiohttp.ClientSession:
        """Return a client that is an admin of this machine."""
        return aiohttp.ClientSession(self.address, headers=admin_headers(self.folder / "data"))

    def family(self) -> list[psutil.Process]:
        """Return every process below it: Postgres, shims, MCP servers and theirs."""
        assert self.process is not None
        return psutil.Process(self.process.pid).children(recursive=True)

    async def kill(self) -> list[psutil.Process]:
        """Pull the plug. Returns what is still alive of its family after a grace of seconds."""
        assert self.process is not None
        family = self.family()
        self.process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(self.process.wait)
        self.process.close()
        _, alive = await asyncio.to_thread(psutil.wait_procs, family, timeout=_END_SECONDS)
        return alive

    async def end(self) -> None:
        """Stop it cleanly if it runs, without waiting for its runs."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGINT)
        with contextlib.suppress(TimeoutError):
            await asyncio.to_thread(self.process.wait, _END_SECONDS)
            self.process.close()
        if self.process.returncode is None:
            await self.kill()

    @asynccontextmanager
    async def stream(self, text: str, thread_id: str = "t") -> AsyncGenerator[AsyncIterator[Event]]:
        """Send a request and give its stream."""
        body = {"input": text, "thread_id": thread_id}
        async with (
            aiohttp.ClientSession(self.address) as client,
            client.post("/v1/agent/run", json=body) as response,
        ):
            assert response.status == 200, await response.text()
            yield read_events(response)

    async def ask(self, text: str, thread_id: str = "t") -> list[Event]:
        """Send a request and return its whole stream."""
        async with self.stream(text, thread_id) as events:
            return [event async for event in events]

    async def read(self, run_id: str, after: int = 0) -> list[Event]:
        """Read a run's stream to its end."""
        async with (
            aiohttp.ClientSession(self.address) as client,
            client.get(f"/v1/runs/{run_id}/events", headers={"Last-Event-ID": str(after)}) as response,
        ):
            return [event async for event in read_events(response)]
