"""One round: everything is started, used, broken, healed and judged."""

import asyncio
import contextlib
import random
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from tests.chaos.admin import Admin
from tests.chaos.books import Books, Reading, Violation
from tests.chaos.callers import Callers
from tests.chaos.desk import Desk
from tests.chaos.evidence import Evidence, gather
from tests.chaos.invariants import violations
from tests.chaos.nemesis import Nemesis, schedule
from tests.chaos.onlookers import Onlooker
from tests.chaos.people import Person
from tests.chaos.processes import all_ready
from tests.chaos.promises import Promises
from tests.chaos.town import TENANTS, Town, open_town

_WARM_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a round is to be: so many faults in so many seconds, and how long it may take to heal from them."""

    seed: int
    faults: int
    seconds: float
    callers: int = 5  # of each tenant
    only: Sequence[str] = ()  # kinds of faults; none: all
    aloud: bool = False  # faults are told as they come
    healing_seconds: float = 180.0
    prune_age: float = 60.0  # seconds since the end of a run that may be pruned; by then nobody sends it again


@dataclass(frozen=True, slots=True)
class Round:
    """What a round was."""

    plan: Plan
    nemesis: Nemesis
    evidence: Evidence
    restarts: Sequence[float]  # seconds from the end of a killed service until it was ready again
    took: Mapping[str, float]  # seconds, by what they went by with
    violations: Sequence[Violation]


class Stopwatch:
    """Says what took how many seconds."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._since = monotonic()

    def lap(self, name: str) -> None:
        """Put down what has gone by since the lap before."""
        now = monotonic()
        self.laps[name] = now - self._since
        self._since = now


async def play(plan: Plan, folder: Path) -> Round:
    """Play a round in `folder`, which every user may enter."""
    books = Books(promises=Promises(prune_age=plan.prune_age))
    watch = Stopwatch()
    async with open_town(folder) as town:
        watch.lap("start")
        admin = Admin.of(town, books)
        nemesis = Nemesis(town, admin, books.promises, plan.aloud)
        await _live_through(plan, town, books, nemesis, watch)
        await admin.engine.dispose()
        await asyncio.gather(*(service.end() for service in town.services))
        for process in await asyncio.to_thread(town.left_over):
            books.wrong("no process is left", f"{process.pid} {process.name()} outlived all services")
        watch.lap("stop")
        evidence = await gather(town, books)
    found = violations(evidence)
    watch.lap("judge")
    restarts = [seconds for service in town.services for seconds in service.restarts]
    return Round(plan, nemesis, evidence, restarts, watch.laps, found)


async def _readiness(town: Town, books: Books, seconds: float) -> None:
    """Wait until all services run again."""
    try:
        await asyncio.wait_for(all_ready(town.services), seconds)
    except TimeoutError:
        away = [service.name for service in town.services if not service.ready.is_set()]
        books.wrong("services come back", f"{', '.join(away)} didn't become ready within {seconds:.0f} s")


async def _live_through(plan: Plan, town: Town, books: Books, nemesis: Nemesis, watch: Stopwatch) -> None:
    enough = asyncio.Event()
    async with AsyncExitStack() as stack:
        desks = [await stack.enter_async_context(_desk(plan, town, books, tenant)) for tenant in TENANTS]
        group = await stack.enter_async_context(asyncio.TaskGroup())
        tasks = [group.create_task(doing) for desk in desks for doing in _doings(plan, desk, enough)]
        endless = [group.create_task(Person(desk).answer()) for desk in desks]
        endless.append(group.create_task(books.promises.feel()))
        await asyncio.sleep(_WARM_SECONDS)
        await nemesis.rage(schedule(plan.seed, plan.faults, plan.seconds, plan.only))
        watch.lap("break")
        enough.set()
        await _readiness(town, books, plan.healing_seconds)
        _, late = await asyncio.wait(tasks, timeout=plan.healing_seconds)
        for task in (*late, *endless):
            task.cancel()
        with contextlib.suppress(TimeoutError):  # readers that aren't told the end are found
            await asyncio.wait_for(_look_after(nemesis.admin, desks), plan.healing_seconds)
    watch.lap("heal")


def _desk(plan: Plan, town: Town, books: Books, tenant: str) -> AbstractAsyncContextManager[Desk]:
    return Desk.of(town, books, tenant, random.Random(f"{plan.seed} {tenant}"))


def _doings(plan: Plan, desk: Desk, enough: asyncio.Event) -> Iterator[Coroutine[Any, Any, None]]:
    looking = Onlooker(desk)
    yield Callers(desk, plan.callers).call(enough)
    yield looking.look(enough)
    yield looking.pry(enough)


async def _look_after(admin: Admin, desks: Sequence[Desk]) -> None:
    """Prune once more, now that nothing is disturbed, read what that left of each tenant's first run, and ask again."""
    await admin.prune()
    for desk in desks:
        own = [run.run_id for run in desk.books.accepted.values() if run.tenant == desk.tenant]
        await asyncio.gather(*(Callers(desk).read(Reading(run_id, "a late reader")) for run_id in own[:1]))
    await asyncio.gather(*(Callers(desk).ask_once_more() for desk in desks))
