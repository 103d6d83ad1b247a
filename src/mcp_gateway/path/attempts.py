"""Attempts at a call: each waits for its turn and ends after its time limit; one that did no harm is repeated once."""

import asyncio
import random
from dataclasses import dataclass, replace
from typing import Final

from mcp_gateway.path.stage import Stage, failed, not_sent
from mcp_gateway.registration.known_servers import Directory
from mcp_gateway.sessions.breakers import ServerBreakers
from mcp_gateway.sessions.call_queue import CallQueues
from starling.core.clock import Deadline
from starling.core.errors import ServerUnavailableError
from starling.core.settings.schema import Limits
from starling.core.tool_calls import Effect, Observation
from starling.core.tools import CallRecord, ToolCall, ToolOutcome

_CALLS_AT_ONCE: Final = 32  # of a server, in one process; others wait for their turn
_PAUSE_SECONDS: Final = (0.1, 0.5)
_QUICK_SECONDS: Final = 5.0  # an attempt that took longer is not worth another one


@dataclass(frozen=True, slots=True)
class Timeout:
    """Waits for the call's turn, and ends it after its time limit, never later than the deadline.

    The time limit includes the wait. A call that used it up after its turn had come is a failure of its server.
    `limits` hold for servers and tools without settings of their own.
    """

    directory: Directory
    breakers: ServerBreakers
    queues: CallQueues
    limits: Limits
    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        name = call.tool.server
        server = self.directory.server(name)
        if server is None:  # removed since it was checked
            return not_sent("removed", f"The server {name} was removed.")
        options, limits = server.config.options, self.limits
        own, at_once = options.timeout_of(call.tool.name) or limits.tool_call_seconds, options.max_calls
        seconds = deadline.cap(own)
        if seconds <= 0:
            return not_sent("timeout", "The run's time is used up.")
        begun = False
        try:
            async with (
                asyncio.timeout(seconds),
                self.queues.turn(name, at_once or _CALLS_AT_ONCE, call.tenant, call.run_id),
            ):
                begun = True
                return await self.inner(replace(call, seconds=seconds), deadline, record)
        except TimeoutError:
            if not begun:
                return not_sent("timeout", f"{name} was busy with other calls for {seconds:.3g} s.")
        text = f"{call.tool.full_name} didn't answer within {seconds:.3g} s."
        if seconds >= own:
            self.breakers.failed((name, server.config.hash), ServerUnavailableError(name, text))
        if record is not None and call.tool.effect is not Effect.READ and not record.has_left(call):
            return not_sent("timeout", f"No session with {name} was open within {seconds:.3g} s.")
        return failed(call, Observation.TIMED_OUT, "timeout", text)


@dataclass(frozen=True, slots=True)
class Retry:
    """Makes a call again, once and after a pause, if its server was unavailable.

    A call that provably never left is made again whatever its effect; one whose connection was lost if it only reads,
    or if it is idempotent: then it carries the same key. No call is made again while its server's breaker is open.
    """

    directory: Directory
    breakers: ServerBreakers
    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        before = deadline.remaining()
        first = await self.inner(call, deadline, record)
        never_left = first.observation is Observation.NOT_SENT
        if first.code != "server_unavailable" or not (never_left or call.tool.effect is not Effect.UNSAFE):
            return first
        pause = random.uniform(*_PAUSE_SECONDS)  # noqa: S311 - spreads repetitions
        quick = before - deadline.remaining() <= _QUICK_SECONDS and deadline.remaining() > pause
        server = self.directory.server(call.tool.server)
        if not quick or (server is not None and self.breakers.refuses((call.tool.server, server.config.hash))):
            return first
        await asyncio.sleep(pause)
        second = await self.inner(call, deadline, record)
        not_done = second.observation in (Observation.NOT_SENT, Observation.REJECTED)
        return first if not_done and not never_left else second  # else the first one may have been carried out
