"""Parts that benchmarks share: a folder, the model that answers at once, the MCP servers with their tools."""

import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from rich.console import Console

from bench.line_process import HERE, line_of, python, running
from bench.platform_process import Place


@dataclass(frozen=True, slots=True)
class ModelControl:
    """Steers the model's process."""

    url: str
    session: aiohttp.ClientSession

    async def calls(self) -> list[dict[str, Any]]:
        """Return what the model was asked since the last time."""
        async with self.session.get(f"{self.url}/calls") as response:
            return orjson.loads(await response.read())

    async def waiting(self, calls: int) -> None:
        """Return once so many calls wait for their answers."""
        async with self.session.get(f"{self.url}/waiting/{calls}") as response:
            response.raise_for_status()

    async def delay(self, milliseconds: float) -> None:
        async with self.session.post(f"{self.url}/delay/{milliseconds}") as response:
            response.raise_for_status()


@dataclass(frozen=True, slots=True)
class BenchSetup:
    """What a part of the benchmark measures with: a folder, the model, and where progress is printed."""

    folder: Path
    model: ModelControl
    console: Console

    def say(self, text: str) -> None:
        self.console.print(f"{text} …")

    def place(self, name: str, **extra: str) -> Place:
        """Make a platform's folder, with the servers configured; `extra` goes into its environment."""
        folder = self.folder / name
        folder.mkdir(mode=0o711)
        (folder / "mcp.json").write_bytes(orjson.dumps(_servers()))
        return Place(folder, self.model.url, extra)


@asynccontextmanager
async def open_setup(folder: Path, console: Console) -> AsyncGenerator[BenchSetup]:
    """Start the model."""
    async with running(python("-m", "bench.benchmark_model")) as process, aiohttp.ClientSession() as session:
        yield BenchSetup(folder, ModelControl(await line_of(process), session), console)


def _servers() -> Mapping[str, Any]:
    tools = str(HERE / "benchmark_tools.py")
    return {
        "mcpServers": {
            name: {"command": sys.executable, "args": [tools, name], "x-starling": {"effect": "read"}}
            for name in ("tides", "library")
        }
    }
