"""Time limits of kill switches and revoked keys, and what may delay them. Times are seconds since 1970.

Everything runs on one machine, so Postgres and the tests read the same clock.
"""

import asyncio
import math
from collections.abc import Collection, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import time
from typing import Literal

from starling.core.principal import SHARED

SWITCH_SECONDS = 2.0  # until no further call is made
CLOSE_SECONDS = 5.0  # until open streams are closed
_SLACK_SECONDS = 2.0  # allowance for many processes on few processors
_TICK_SECONDS = 0.1
_HELD_UP_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class SwitchedOff:
    """A kill switch or revoked key, in force from `since` to `until`."""

    kind: Literal["tenant", "server", "agent", "key"]
    name: str
    tenant: str  # whose calls; `*`: of all tenants
    since: float
    until: float = math.inf

    def concerns(self, tenant: str, tool: str, key_id: str, teams: Collection[str] = ()) -> bool:
        """Return whether it stops a call of `tool` (full name) for `tenant`, in a run started with `key_id`.

        `teams` are those that it is made inside; without any it is of the server's own agent.
        """
        server = tool.partition(".")[0]
        agents = teams or {f"mcp_agent_{server}"}
        names = {"tenant": {tenant}, "server": {server}, "agent": agents, "key": {key_id}}[self.kind]
        return self.tenant in (tenant, SHARED) and (self.name == SHARED or self.name in names)


@dataclass(slots=True)
class OpenStream:
    """A stream, the key that opened it, and the address of the API that it was opened at."""

    key_id: str
    opened: float
    closed: float = math.inf
    address: str = ""


@dataclass(frozen=True, slots=True)
class KeyProbe:
    """A request with a revoked key and its status; 0: no response."""

    key_id: str
    at: float
    status: int


@dataclass(slots=True)
class TimingGuarantees:
    """What was switched off or revoked, and the disturbances that may delay its effect."""

    switched_off: list[SwitchedOff] = field(default_factory=list[SwitchedOff])
    streams: list[OpenStream] = field(default_factory=list[OpenStream])
    key_probes: list[KeyProbe] = field(default_factory=list[KeyProbe])
    prune_age: float = math.inf
    _disturbances: list[list[float]] = field(default_factory=list[list[float]])

    @contextmanager
    def disturbed(self) -> Generator[None]:
        """Record a disturbance for the duration of the block: time limits don't run meanwhile."""
        disturbance = [time(), math.inf]
        self._disturbances.append(disturbance)
        try:
            yield
        finally:
            disturbance[1] = time()

    def note_disturbance(self, begun: float, ended: float) -> None:
        """Record a disturbance that is over."""
        self._disturbances.append([begun, ended])

    async def watch_for_delays(self) -> None:
        """Record times in which this process was not scheduled, until cancelled: others may have been delayed too."""
        before = time()
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            if time() - before > _TICK_SECONDS + _HELD_UP_SECONDS:
                self.note_disturbance(before, time())
            before = time()

    def open_with(self, key_id: str) -> int:
        """Return the number of open streams of a key."""
        return sum(stream.key_id == key_id and math.isinf(stream.closed) for stream in self.streams)

    def streams_at(self, address: str) -> int:
        """Return the number of open streams of an API."""
        return sum(stream.address == address and math.isinf(stream.closed) for stream in self.streams)

    def due(self, since: float, seconds: float) -> float:
        """Return the time limit: `seconds` without a disturbance after `since`."""
        moment = since
        for begun, ended in sorted(self._disturbances):
            if begun < moment + seconds + _SLACK_SECONDS and ended > moment:
                moment = ended
        return moment + seconds + _SLACK_SECONDS

    def seen(self, off: SwitchedOff) -> float:
        """Return for how many seconds it was in force beyond its time limit."""
        return max(0.0, off.until - self.due(off.since, SWITCH_SECONDS))
