"""`make bench`: measures the platform next to references. `python -m bench.run NAME…` measures some figures only.

Each part measures its figures next to their references in the same minutes: the machine's noise hits both alike.
"""

import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from bench import (
    answer_check,
    body_stall,
    call_overhead,
    command_startup,
    console_pages,
    deployment,
    figures,
    index_memory,
    injections,
    loop_stall,
    many_servers,
    many_teams,
    openai_overhead,
    package_size,
    prompt_length,
    request,
    retrieval,
    run_forks,
    run_pickup,
    silent_readers,
    skill_recall,
    skill_store,
    streams,
    team_builds,
    team_compilation,
    team_members,
    team_proofs,
    team_routing,
    team_selection,
    tenant_fairness,
    thread_growth,
    tracing_overhead,
)
from bench.figures import Figure
from bench.harness import BenchSetup, open_setup
from bench.line_process import HERE

_RESULTS = HERE / "results.jsonl"


@dataclass(frozen=True, slots=True)
class Part:
    """Measures some figures, all at once. It is stopped after `seconds`, several times what it takes on quiet cores."""

    names: tuple[str, ...]
    measure: Callable[[BenchSetup], Awaitable[Sequence[Figure]]]
    seconds: float = 300


PARTS = (
    Part(request.NAMES, request.measure),
    Part(prompt_length.NAMES, prompt_length.measure),
    Part(thread_growth.THREAD_NAMES, thread_growth.measure_thread),
    Part(thread_growth.CHECKPOINT_NAMES, thread_growth.measure_checkpoints),
    Part(run_forks.NAMES, run_forks.measure),
    Part(run_pickup.NAMES, run_pickup.measure),
    Part(deployment.NAMES, deployment.measure),
    Part(tenant_fairness.NAMES, tenant_fairness.measure),
    Part(streams.EVENT_NAMES, streams.measure_events),
    Part(streams.READER_NAMES, streams.measure_readers),
    Part(silent_readers.NAMES, silent_readers.measure),
    Part(package_size.NAMES, package_size.measure),
    Part(command_startup.NAMES, command_startup.measure),
    Part(console_pages.NAMES, console_pages.measure),
    Part(many_servers.NAMES, many_servers.measure),
    Part(many_teams.NAMES, many_teams.measure),
    Part(loop_stall.NAMES, loop_stall.measure),
    Part(body_stall.NAMES, body_stall.measure, seconds=1_200),
    Part(call_overhead.NAMES, call_overhead.measure),
    Part(openai_overhead.NAMES, openai_overhead.measure),
    Part(tracing_overhead.NAMES, tracing_overhead.measure),
    Part(retrieval.NAMES, retrieval.measure),
    Part(index_memory.NAMES, index_memory.measure),
    Part(retrieval.MINILM_NAMES, retrieval.measure_minilm),
    Part(skill_recall.NAMES, skill_recall.measure, seconds=900),
    Part(skill_recall.MINILM_NAMES, skill_recall.measure_minilm, seconds=900),
    Part(skill_store.NAMES, skill_store.measure),
    Part(team_builds.NAMES, team_builds.measure),
    Part(team_compilation.NAMES, team_compilation.measure),
    Part(team_members.NAMES, team_members.measure),
    Part(team_proofs.NAMES, team_proofs.measure),
    Part(team_routing.NAMES, team_routing.measure),
    Part(answer_check.NAMES, answer_check.measure),
    Part(injections.NAMES, injections.measure, seconds=900),
    Part(team_selection.NAMES, team_selection.measure),
)


def chosen(names: Sequence[str]) -> list[Part]:
    """Return the parts that measure the figures of these names; all of them for none. Raises SystemExit.

    A name without a dot, such as `deploy`, means all figures that begin so.
    """
    known = [name for part in PARTS for name in part.names]
    if unknown := {asked for asked in names if not any(_is_meant(name, asked) for name in known)}:
        raise SystemExit(f"There is no figure {', '.join(sorted(unknown))}. There are: {', '.join(known)}.")
    return [
        part for part in PARTS if not names or any(_is_meant(name, asked) for name in part.names for asked in names)
    ]


def _is_meant(name: str, asked: str) -> bool:
    return name == asked or name.partition(".")[0] == asked


async def _measure(parts: Sequence[Part], folder: Path, console: Console) -> list[Part]:
    """Measure the parts one after another, write and show the figures of each; return the parts that were stopped."""
    stopped: list[Part] = []
    async with open_setup(folder, console) as setup:
        for part in parts:
            begun = time.monotonic()
            try:
                async with asyncio.timeout(part.seconds):
                    measured = await part.measure(setup)
            except TimeoutError:
                stopped.append(part)
                console.print(f"[red]Stopped after {part.seconds:g} s: {', '.join(part.names)}[/]")
                continue
            figures.write(measured, _RESULTS)
            figures.show(measured, console)
            console.print(f"[dim]{time.monotonic() - begun:.0f} s[/]")
    return stopped


def main() -> None:
    console = Console()
    console.width = max(console.width, 140)
    parts = chosen(sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="starling-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)  # under root the embedded Postgres runs as somebody else
        try:
            stopped = asyncio.run(_measure(parts, folder, console))
        except KeyboardInterrupt:  # what ended before is written
            raise SystemExit(128 + signal.SIGINT) from None
    console.print(f"Written to {_RESULTS}.")
    if stopped:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
