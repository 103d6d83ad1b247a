"""The effect recorder, a test MCP server: its configuration, its record, and the gates that its calls wait at."""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.gateway_harness import SERVERS

AGENT = "mcp_agent_effects"
_EFFECTS = {
    "read_it": "read",
    "put": "idempotent",
    "pay": "idempotent",
    "charge": "unsafe",
    "invoice": "unsafe",
    "find_charge": "read",
}


@dataclass(frozen=True, slots=True)
class EffectRecorder:
    """The record of all effect servers that write to one file."""

    file: Path

    def as_server(self, *, reconcile: bool = False, start_gate: str = "", **options: Any) -> dict[str, Any]:
        """Return the entry under `mcpServers`; `options` go under `x-starling`.

        With a `start_gate` each of its processes starts once that gate is open.
        """
        tools: dict[str, dict[str, Any]] = {tool: {"effect": effect} for tool, effect in _EFFECTS.items()}
        gate = {"EFFECTS_START_GATE": str(self.file.parent / start_gate)} if start_gate else {}
        if reconcile:
            tools["charge"]["reconcile"] = "find_charge"
        return {
            "command": sys.executable,
            "args": [str(SERVERS / "effects.py")],
            "env": {"EFFECTS_FILE": str(self.file)} | gate,
            "x-starling": {"description": "Reads, puts and charges.", "tools": tools, **options},
        }

    def lines(self, at: str) -> Sequence[Mapping[str, Any]]:
        """Return what `arrived`, or what was `done`, in order."""
        text = self.file.read_text() if self.file.exists() else ""
        noted = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [line for line in noted if line["at"] == at]

    def done(self) -> list[str]:
        """Return the effects, as `charge a`."""
        return [f"{line['tool']} {line['what']}" for line in self.lines("done")]

    def open(self, gate: str) -> None:
        """Open a gate for all current and later calls."""
        (self.file.parent / gate).touch()

    def close(self, gate: str) -> None:
        """Close a gate for later calls."""
        (self.file.parent / gate).unlink()

    async def until(self, at: str, what: str, count: int = 1) -> None:
        """Return once so many calls with this `what` have `arrived`, or are `done`."""
        async with asyncio.timeout(60):
            while sum(line["what"] == what for line in self.lines(at)) < count:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.01)
