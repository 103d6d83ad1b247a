"""What admins do to a town, and from when on it has to hold. Times are seconds since 1970 by Postgres' clock.

Everything runs on one machine, so the harness' own clock is that one, too.
"""

import asyncio
import math
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import time
from typing import Literal

from starling.core.principal import SHARED

HALTED_SECONDS = 2.0  # until nothing is called any more
CLOSED_SECONDS = 5.0  # until nobody is told anything any more
_SLACK_SECONDS = 2.0  # that it takes longer where many processes share few processors
_TICK_SECONDS = 0.1
_HELD_UP_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Halt:
    """Something that nothing was to be called of, by or for: `since` then it counted, `until` then it still did."""

    kind: Literal["tenant", "server", "agent", "key"]
    name: str
    tenant: str  # whose calls; `*` is everybody's
    since: float
    until: float = math.inf

    def concerns(self, tenant: str, tool: str, key_id: str) -> bool:
        """Whether a call is to be stopped: a tenant's, of a tool by its full name, in a run that a key asked for."""
        server = tool.partition(".")[0]
        name = {"tenant": tenant, "server": server, "agent": f"mcp_agent_{server}", "key": key_id}[self.kind]
        return self.tenant in (tenant, SHARED) and self.name in (name, SHARED)


@dataclass(slots=True)
class Stream:
    """A stream that was opened with a key."""

    key_id: str
    opened: float
    closed: float = math.inf


@dataclass(frozen=True, slots=True)
class Knock:
    """A request with a key that doesn't count any more, and its status; 0: nobody answered."""

    key_id: str
    at: float
    status: int


@dataclass(slots=True)
class Promises:
    """Everything that was promised in a round, and what may have delayed it."""

    halts: list[Halt] = field(default_factory=list[Halt])
    streams: list[Stream] = field(default_factory=list[Stream])
    knocks: list[Knock] = field(default_factory=list[Knock])
    prune_age: float = math.inf
    _disturbances: list[list[float]] = field(default_factory=list[list[float]])

    @contextmanager
    def disturbed(self) -> Generator[None]:
        """Note that for as long as the block lasts nobody can be expected to keep a time."""
        disturbance = [time(), math.inf]
        self._disturbances.append(disturbance)
        try:
            yield
        finally:
            disturbance[1] = time()

    def note_disturbance(self, begun: float, ended: float) -> None:
        """Note one that is over."""
        self._disturbances.append([begun, ended])

    async def feel(self) -> None:
        """Note, until it is cancelled, when this process was held up: then others may have been as well."""
        before = time()
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            if time() - before > _TICK_SECONDS + _HELD_UP_SECONDS:
                self.note_disturbance(before, time())
            before = time()

    def open_with(self, key_id: str) -> int:
        """Return how many streams that were opened with a key haven't ended."""
        return sum(stream.key_id == key_id and math.isinf(stream.closed) for stream in self.streams)

    def due(self, since: float, seconds: float) -> float:
        """Return when something has to hold that takes so many seconds, in which nothing disturbs it."""
        moment = since
        for begun, ended in sorted(self._disturbances):
            if begun < moment + seconds + _SLACK_SECONDS and ended > moment:
                moment = ended
        return moment + seconds + _SLACK_SECONDS

    def seen(self, halt: Halt) -> float:
        """Return for how many seconds a halt was in force and had to hold."""
        return max(0.0, halt.until - self.due(halt.since, HALTED_SECONDS))
