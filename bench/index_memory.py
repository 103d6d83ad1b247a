"""The memory that an index of many servers takes. `python -m bench.index_memory SERVERS` prints it in MB."""

import asyncio
import gc
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench.embedders import static_embedder
from bench.figures import Figure
from bench.harness import BenchSetup
from bench.labelled_texts import roster_of, server_rows
from bench.line_process import line_of, python, running
from brain.registry.cards import Roster
from brain.retrieval.agent_finder import AgentFinder
from brain.retrieval.search import AgentSearch
from starling.core.clock import SystemClock

NAMES: Final = ("retrieval.memory_mb_10000",)
_DISTINCT: Final = 1_677  # servers of StableToolBench and Toucan; further ones are these with other words
_PATIENCE_SECONDS: Final = 600


async def measure(setup: BenchSetup) -> list[Figure]:
    """Measure 10,000 servers beside 1,000."""
    setup.say("The memory of an index")
    few, many = await _grown(1_000), await _grown(10_000)
    return [Figure("retrieval.memory_mb_10000", many, "MB", few, "with 1,000 servers")]


async def _grown(servers: int) -> float:
    async with running(python("-m", "bench.index_memory", str(servers))) as process:
        return float(await line_of(process))


async def _print(servers: int) -> None:
    """Print how much more memory the process has after the first search; the model is loaded, and the cards exist."""
    known = server_rows("stabletoolbench", _DISTINCT)
    roster = roster_of([_varied(known[number % _DISTINCT], number // _DISTINCT) for number in range(servers)])
    finder = AgentFinder(static_embedder(keeps=False), SystemClock(), patience=_PATIENCE_SECONDS)
    small = Roster(dict(list(roster.cards.items())[:10]))
    await finder.rank(AgentSearch("bench", small, small), "rain", 5)
    before = _memory()
    await finder.rank(AgentSearch("bench", roster, roster), "rain", 5)
    print(_memory() - before, flush=True)


def _varied(row: Mapping[str, Any], turn: int) -> Mapping[str, Any]:
    if not turn:
        return row
    tools = [
        {"name": tool["name"], "description": f"{tool['description']} variant{turn}x{number}"}
        for number, tool in enumerate(row["tools"])
    ]
    return {"server": f"{row['server']} {turn}", "description": f"{row['description']} edition{turn}", "tools": tools}


def _memory() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * 4096 / 1e6


if __name__ == "__main__":
    asyncio.run(_print(int(sys.argv[1])))
