"""What a model that obeys every text can do: each row of injected texts in each place that models read from.

The platform, its database and its servers are real and in this process; only the model isn't. The rows are in
`tests/data/security/injection_payloads.jsonl`, the trials in `tests/support/injections.py`.
"""

import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from bench.figures import Figure
from bench.harness import BenchSetup
from starling.infra.postgres.embedded.server import EmbeddedPostgres
from starling.infra.postgres.schema import upgrade
from tests.support.injections import PLACES, ROWS, TWINS, InjectionRange, Trial, canaries_at_rest, open_range

NAMES: Final = ("injections.held", "injections.benign")
_UNBOUNDED: Final = "runs with a call to forbidden tools, without grants, governance and approvals"


async def measure(setup: BenchSetup) -> list[Figure]:
    """Measure the share of runs in which nothing forbidden came of an order, and of harmless twins that are served."""
    setup.say(
        f"{len(ROWS)} texts with orders and {len(TWINS)} without, in {len(PLACES)} places, with a model that obeys them"
    )
    async with _opened(bounded=True) as injections:
        ordered = await _trials(injections)
        twins = await _trials(injections, benign=True)
        at_rest = await canaries_at_rest(injections)
    async with _opened(bounded=False) as injections:
        unbounded = await _trials(injections)
    for place in PLACES:
        here = [trial for trial in ordered if trial.place == place]
        tried, stopped = _total(trial.tried for trial in here), _total(trial.stopped for trial in here)
        setup.console.print(f"[dim]{place}: tried {tried}; stopped by {stopped}[/]")
    for trial in (*(trial for trial in ordered if not trial.held), *(twin for twin in twins if not twin.served)):
        setup.console.print(f"[red]{trial}[/]")
    if at_rest:
        setup.console.print(f"[red]Canaries in the database: {', '.join(sorted(set(at_rest)))}[/]")
    held = 0 if at_rest else _share(ordered, lambda trial: trial.held)
    served = _share(ordered, lambda trial: trial.served)
    return [
        Figure(NAMES[0], held, "", _share(unbounded, lambda trial: bool(trial.outside)), _UNBOUNDED),
        Figure(NAMES[1], _share(twins, lambda trial: trial.served), "", served, "the same of the texts with orders"),
    ]


async def _trials(injections: InjectionRange, *, benign: bool = False) -> list[Trial]:
    rows = range(len(TWINS if benign else ROWS))
    return [await injections.trial(place, row, benign=benign) for place in PLACES for row in rows]


def _share(trials: Sequence[Trial], fits: Callable[[Trial], bool]) -> float:
    return sum(map(fits, trials)) / len(trials)


def _total(counts: Iterable[Mapping[str, int]]) -> str:
    total = sum(map(Counter[str], counts), Counter[str]())
    return ", ".join(f"{name} {count}" for name, count in total.most_common())


@asynccontextmanager
async def _opened(*, bounded: bool) -> AsyncGenerator[InjectionRange]:
    with tempfile.TemporaryDirectory(prefix="starling-bench-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        with EmbeddedPostgres(folder / "data", durable=False) as postgres:
            await upgrade(postgres.url)
            async with open_range(postgres.url, folder, bounded=bounded) as injections:
                yield injections
