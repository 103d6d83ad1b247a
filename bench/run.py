"""`make bench`: what the platform costs, next to what nobody can do without. `python -m bench.run NAME…` for some.

Each part measures its figures next to their references in the same minutes: the machine's noise hits both alike.
"""

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from bench import figures, fleet, growth, many, request, starts, streams, tracing
from bench.figures import Figure
from bench.process import HERE
from bench.stage import Stage, open_stage

_RESULTS = HERE / "results.jsonl"


@dataclass(frozen=True, slots=True)
class Part:
    """Measures some figures, all at once."""

    names: tuple[str, ...]
    measure: Callable[[Stage], Awaitable[Sequence[Figure]]]


PARTS = (
    Part(request.NAMES, request.measure),
    Part(growth.THREAD_NAMES, growth.measure_thread),
    Part(growth.CHECKPOINT_NAMES, growth.measure_checkpoints),
    Part(fleet.PICKUP_NAMES, fleet.measure_pickup),
    Part(fleet.SPEEDUP_NAMES, fleet.measure_speedup),
    Part(streams.EVENT_NAMES, streams.measure_events),
    Part(streams.READER_NAMES, streams.measure_readers),
    Part(starts.NAMES, starts.measure),
    Part(many.NAMES, many.measure),
    Part(tracing.NAMES, tracing.measure),
)


def chosen(names: Sequence[str]) -> list[Part]:
    """Return the parts that measure the figures of these names; all of them for none. Raises SystemExit."""
    known = [name for part in PARTS for name in part.names]
    if unknown := set(names) - set(known):
        raise SystemExit(f"There is no figure {', '.join(sorted(unknown))}. There are: {', '.join(known)}.")
    return [part for part in PARTS if not names or set(names) & set(part.names)]


async def _measure(parts: Sequence[Part], folder: Path, console: Console) -> list[Figure]:
    async with open_stage(folder, console) as stage:
        return [figure for part in parts for figure in await part.measure(stage)]


def main() -> None:
    console = Console()
    console.width = max(console.width, 110)
    parts = chosen(sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="starling-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)  # under root the embedded Postgres runs as somebody else
        measured = asyncio.run(_measure(parts, folder, console))
    figures.write(measured, _RESULTS)
    figures.show(measured, console)
    console.print(f"Written to {_RESULTS}.")


if __name__ == "__main__":
    main()
