"""One more attempt at a call that never left, or whose repetition is harmless."""

import asyncio
import random
from dataclasses import dataclass
from typing import Final

from mcp_gateway.path.stage import Stage
from mcp_gateway.registration.known_servers import Directory
from mcp_gateway.sessions.breaker import ServerBreakers
from starling.core.clock import Deadline
from starling.core.tool_calls import Effect, Observation
from starling.core.tools import CallRecord, ToolCall, ToolOutcome

_PAUSE_SECONDS: Final = (0.1, 0.5)
_QUICK_SECONDS: Final = 5.0  # an attempt that took longer is not worth another one


@dataclass(frozen=True, slots=True)
class Retry:
    """Makes a call again, once and after a pause, if its server was unavailable.

    A call that provably never left is made again whatever its effect; one whose connection was lost if it only reads,
    or if it is idempotent: then it carries the same key. None is, while the breaker of its server is open.
    """

    directory: Directory
    breakers: ServerBreakers
    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        before = deadline.remaining()
        first = await self.inner(call, deadline, record)
        pause = random.uniform(*_PAUSE_SECONDS)  # noqa: S311 - spreads repetitions
        quick = before - deadline.remaining() <= _QUICK_SECONDS and deadline.remaining() > pause
        if not (quick and _may_be_repeated(call, first)) or self._is_refused(call):
            return first
        await asyncio.sleep(pause)
        second = await self.inner(call, deadline, record)
        if first.observation is Observation.CONNECTION_LOST and second.observation is Observation.NOT_SENT:
            return first  # that the second attempt didn't leave says nothing about the first one
        return second

    def _is_refused(self, call: ToolCall) -> bool:
        server = self.directory.server(call.tool.server)
        return server is not None and self.breakers.refuses((call.tool.server, server.config.hash))


def _may_be_repeated(call: ToolCall, outcome: ToolOutcome) -> bool:
    if outcome.code != "server_unavailable":
        return False
    never_left = outcome.observation is Observation.NOT_SENT
    return never_left or call.tool.effect is not Effect.UNSAFE
