"""One round: everything is started, used, broken, healed and judged."""

import asyncio
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from tests.chaos.books import Books, Violation
from tests.chaos.callers import Callers
from tests.chaos.desk import Desk
from tests.chaos.evidence import Evidence, gather
from tests.chaos.invariants import violations
from tests.chaos.nemesis import Nemesis, schedule
from tests.chaos.onlookers import Onlooker
from tests.chaos.people import Person
from tests.chaos.processes import all_ready
from tests.chaos.town import TENANTS, Town, open_town

_WARM_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a round is to be: so many faults in so many seconds, and how long it may take to heal from them."""

    seed: int
    faults: int
    seconds: float
    only: Sequence[str] = ()  # kinds of faults; none: all
    aloud: bool = False  # faults are told as they come
    healing_seconds: float = 180.0


@dataclass(frozen=True, slots=True)
class Round:
    """What a round was."""

    plan: Plan
    nemesis: Nemesis
    evidence: Evidence
    restarts: Sequence[float]  # seconds from the end of a killed service until it was ready again
    healed_after: float  # seconds from the last fault until every accepted run had ended
    violations: Sequence[Violation]


async def play(plan: Plan, folder: Path) -> Round:
    """Play a round in `folder`, which every user may enter."""
    books = Books()
    async with open_town(folder) as town:
        nemesis = Nemesis(town, plan.aloud)
        healed_after = await _live_through(plan, town, books, nemesis)
        await asyncio.gather(*(service.end() for service in town.services))
        for process in await asyncio.to_thread(town.left_over):
            books.wrong("no process is left", f"{process.pid} {process.name()} outlived all services")
        evidence = await gather(town, books)
    restarts = [seconds for service in town.services for seconds in service.restarts]
    return Round(plan, nemesis, evidence, restarts, healed_after, violations(evidence))


async def _readiness(town: Town, books: Books, seconds: float) -> None:
    """Wait until all services run again."""
    try:
        await asyncio.wait_for(all_ready(town.services), seconds)
    except TimeoutError:
        away = [service.name for service in town.services if not service.ready.is_set()]
        books.wrong("services come back", f"{', '.join(away)} didn't become ready within {seconds:.0f} s")


async def _live_through(plan: Plan, town: Town, books: Books, nemesis: Nemesis) -> float:
    enough = asyncio.Event()
    async with AsyncExitStack() as stack:
        group = await stack.enter_async_context(asyncio.TaskGroup())
        tasks: list[asyncio.Task[None]] = []
        people: list[asyncio.Task[None]] = []
        for tenant in TENANTS:
            dice = random.Random(f"{plan.seed} {tenant}")
            desk = await stack.enter_async_context(Desk.of(town, books, tenant, dice))
            looking = Onlooker(desk)
            doings = (Callers(desk).call, looking.look, looking.pry)
            tasks += [group.create_task(doing(enough)) for doing in doings]
            people.append(group.create_task(Person(desk).answer()))
        await asyncio.sleep(_WARM_SECONDS)
        await nemesis.rage(schedule(plan.seed, plan.faults, plan.seconds, plan.only))
        begun = monotonic()
        enough.set()
        await _readiness(town, books, plan.healing_seconds)
        _, late = await asyncio.wait(tasks, timeout=plan.healing_seconds)
        for task in (*late, *people):
            task.cancel()
    return monotonic() - begun
