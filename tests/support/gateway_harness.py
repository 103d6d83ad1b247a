"""A gateway with real MCP servers, for tests."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from mcp_gateway.configuration.address_rules import PUBLIC_ONLY, AddressRules
from mcp_gateway.configuration.servers import ServerConfig, server_of
from mcp_gateway.connections import connect
from mcp_gateway.gateway import Gateway
from mcp_gateway.registration.repository import ServerRepository
from mcp_gateway.sessions import shim
from starling.core.clock import Deadline, SystemClock
from starling.core.ids import new_id
from starling.core.settings.schema import Limits
from starling.core.tools import Halts, ServerListing, ToolCall, ToolOutcome
from tests.support.absent_services import NO_HALTS, open_gateway

SERVERS = Path(__file__).parent / "mcp_servers"
SOURCE = Path(__file__).parents[2] / "src"
TOOLS = Path(__file__).parents[2] / ".tools/servers"
_FIRST_PORT, _PORTS = 10_000, 22_000
_ports = (_FIRST_PORT + number % _PORTS for number in count(os.getpid() * 101))


@dataclass
class GatewayHarness:
    """Opens gateways on a database and configures test servers."""

    engine: AsyncEngine
    folder: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": os.environ["PATH"]})

    @asynccontextmanager
    async def gateway(
        self, halts: Halts = NO_HALTS, addresses: AddressRules = PUBLIC_ONLY, **limits: Any
    ) -> AsyncGenerator[Gateway]:
        repository, known = ServerRepository(self.engine), Limits(**limits)
        others: dict[str, Any] = {"halts": halts, "addresses": addresses}
        async with open_gateway(repository, connect, known, self.environment, **others) as gateway:
            yield gateway

    @asynccontextmanager
    async def listing(
        self, config: ServerConfig, halts: Halts = NO_HALTS, **limits: Any
    ) -> AsyncGenerator[tuple[Gateway, ServerListing]]:
        """Open a gateway with one server, and give its listing too."""
        async with self.gateway(halts, **limits) as gateway:
            yield gateway, await listed(gateway, config)

    async def listed(self, config: ServerConfig, **limits: Any) -> ServerListing:
        """List a server; its process has ended then."""
        async with self.listing(config, **limits) as (_, listing):
            return listing

    def recording(self, **options: Any) -> ServerConfig:
        return python(SERVERS / "recording.py", str(self.record), **options)

    def misbehaving(self, how: str, **options: Any) -> ServerConfig:
        return python(SERVERS / "misbehaving.py", how, str(self.record), **options)

    async def sources(self) -> dict[str, str]:
        """Return how each stored server got in."""
        return {row.name: row.source for row in await ServerRepository(self.engine).servers()}

    @property
    def record(self) -> Path:
        return self.folder / "record"

    def recorded(self) -> list[str]:
        return self.record.read_text().splitlines() if self.record.exists() else []


class running_http:  # noqa: N801 - reads as the function that it could be
    """Runs the recording server on a port until the block ends."""

    def __init__(self, record: Path, port: int) -> None:
        command = [sys.executable, SERVERS / "recording_http.py", record, str(port)]
        self.port = port
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def __enter__(self) -> ServerConfig:
        wait_for_port(self.port, self.process)
        return server_of({"url": f"http://127.0.0.1:{self.port}/mcp", "x-starling": {"effect": "read"}})

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def python(script: Path, *arguments: str, env: dict[str, str] | None = None, **options: Any) -> ServerConfig:
    return server_of(
        {"command": sys.executable, "args": [str(script), *arguments], "env": env or {}, "x-starling": options}
    )


def module(name: str, **options: Any) -> ServerConfig:
    env = {"PYTHONPATH": str(SOURCE)}
    return server_of({"command": sys.executable, "args": ["-m", name], "env": env, "x-starling": options})


def foreign(name: str) -> ServerConfig:
    """A third-party server, in its own environment."""
    command = TOOLS / name / "bin" / f"mcp-server-{name}"
    if shutil.which(command) is None:
        pytest.skip(f"no {command}: run scripts/server-env {name}")
    return server_of({"command": str(command)})


def wait_for_port(port: int, process: subprocess.Popen[Any]) -> None:
    """Return when the process listens on the port, or has ended."""
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        except ConnectionRefusedError:
            time.sleep(0.02)  # it starts meanwhile, on a machine that may have one core


def free_port() -> int:
    """Return a port that nothing listens on, for a server that is told its port.

    It is none of those that the system chooses for others from 32768 on, so that no other server or connection takes it
    before the server listens; each process of tests goes through these ports from a place of its own.
    """
    for port in _ports:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("there is always a next port")


def named(listings: tuple[ServerListing, ...], name: str) -> ServerListing:
    return next(listing for listing in listings if listing.name == name)


async def listed(gateway: Gateway, config: ServerConfig, name: str = "a") -> ServerListing:
    return named(await gateway.catalog.sync({name: config}), name)


async def call(
    gateway: Gateway, listing: ServerListing, tool: str, /, *, seconds: float = 20, **arguments: Any
) -> ToolOutcome:
    definition = next(found for found in listing.tools if found.name == tool)
    call = ToolCall(new_id(), "run", "t1", definition, arguments)
    return await gateway.call(call, Deadline(SystemClock(), seconds))


async def wait_for(reached: Callable[[], bool], seconds: float = 60) -> None:
    """Return when a condition outside of this process holds; fail after `seconds`."""
    async with asyncio.timeout(seconds):
        while not reached():  # noqa: ASYNC110 - other processes have no event to wait on
            await asyncio.sleep(0.01)


def running_shims() -> list[psutil.Process]:
    """The shims of this process, one for each stdio server that runs."""
    shims: list[psutil.Process] = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if shim.__file__ in child.cmdline():
                shims.append(child)
    return shims
