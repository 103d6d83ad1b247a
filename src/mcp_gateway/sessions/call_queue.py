"""The calls of a server that are made at once, and those that wait: they take turns by tenant, then by run."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

type _Waiting = deque[asyncio.Future[None]]


@dataclass(slots=True)
class _Queue:
    """The calls of one server. Tenants and runs that waited longest for a turn come first."""

    most: int
    running: int = 0
    tenants: OrderedDict[str, OrderedDict[str, _Waiting]] = field(
        default_factory=OrderedDict[str, OrderedDict[str, _Waiting]]
    )

    def wait(self, tenant: str, run: str) -> asyncio.Future[None]:
        turn = asyncio.get_running_loop().create_future()
        self.tenants.setdefault(tenant, OrderedDict()).setdefault(run, deque()).append(turn)
        return turn

    def leave(self, tenant: str, run: str, turn: asyncio.Future[None]) -> None:
        """Remove a call that is cancelled; where its turn has come already, pass it on."""
        if not turn.cancelled():
            self.end()
            return
        waiting = self.tenants[tenant].get(run) if tenant in self.tenants else None
        if waiting is not None and turn in waiting:
            waiting.remove(turn)
            self._drop_empty(tenant, run)

    def end(self) -> None:
        """End one call, and start those whose turn it is."""
        self.running -= 1
        while self.tenants and self.running < self.most:
            tenant, runs = next(iter(self.tenants.items()))
            run, waiting = next(iter(runs.items()))
            turn = waiting.popleft()
            self.tenants.move_to_end(tenant)
            runs.move_to_end(run)
            self._drop_empty(tenant, run)
            if not turn.done():  # else it is cancelled, and about to leave
                self.running += 1
                turn.set_result(None)

    def _drop_empty(self, tenant: str, run: str) -> None:
        runs = self.tenants[tenant]
        if not runs[run]:
            del runs[run]
        if not runs:
            del self.tenants[tenant]


class CallQueues:
    """Bounds how many calls of each server are made at once. Calls that wait are cancelled as any other."""

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}

    @asynccontextmanager
    async def turn(self, server: str, most: int, tenant: str, run: str) -> AsyncGenerator[None]:
        """Wait until the call may be made: at most `most` calls of its server are made at once."""
        queue = self._queues.setdefault(server, _Queue(most))
        queue.most = most
        if queue.running < most and not queue.tenants:
            queue.running += 1
        else:
            turn = queue.wait(tenant, run)
            try:
                await turn
            except asyncio.CancelledError:
                queue.leave(tenant, run, turn)
                raise
        try:
            yield
        finally:
            queue.end()
            if not queue.running:  # so nothing waits
                self._queues.pop(server, None)
