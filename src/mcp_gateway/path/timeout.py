"""Bounds the time of a call, whatever its server does, and how many of its server are made at once."""

import asyncio
from dataclasses import dataclass
from typing import Final

from mcp_gateway.path.stage import Stage, failed, not_sent
from mcp_gateway.registration.known_servers import Directory, KnownServer
from mcp_gateway.sessions.breaker import ServerBreakers
from mcp_gateway.sessions.call_queue import CallQueues
from starling.core.clock import Deadline
from starling.core.errors import ServerUnavailableError
from starling.core.settings.schema import Limits
from starling.core.tool_calls import Effect, Observation
from starling.core.tools import CallRecord, ToolCall, ToolOutcome

_CALLS_AT_ONCE: Final = 32  # of a server, in one process; others wait for their turn


@dataclass(frozen=True, slots=True)
class CallBounds:
    """What bounds calls. `limits` hold for servers and tools without settings of their own."""

    directory: Directory
    breakers: ServerBreakers
    queues: CallQueues
    limits: Limits

    def seconds(self, server: KnownServer, tool: str) -> float:
        """Return the seconds that a call of a tool may take, the wait for its turn included."""
        return server.config.options.timeout_of(tool) or self.limits.tool_call_seconds

    def at_once(self, server: KnownServer) -> int:
        """Return how many calls of a server are made at once."""
        return server.config.options.max_calls or _CALLS_AT_ONCE


@dataclass(frozen=True, slots=True)
class Timeout:
    """Waits for the call's turn, and ends it after its time limit, never later than the deadline.

    A call that used up its own time limit, after its turn had come, is a failure of its server.
    """

    bounds: CallBounds
    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        name = call.tool.server
        server = self.bounds.directory.server(name)
        if server is None:  # removed since it was checked
            return not_sent("removed", f"The server {name} was removed.")
        own = self.bounds.seconds(server, call.tool.name)
        seconds = deadline.cap(own)
        if seconds <= 0:
            return not_sent("timeout", "The run's time is used up.")
        begun = False
        try:
            async with (
                asyncio.timeout(seconds),
                self.bounds.queues.turn(name, self.bounds.at_once(server), call.tenant, call.run_id),
            ):
                begun = True
                return await self.inner(call, deadline, record)
        except TimeoutError:
            if not begun:
                return not_sent("timeout", f"{name} was busy with other calls for {seconds:.3g} s.")
        text = f"{call.tool.full_name} didn't answer within {seconds:.3g} s."
        if seconds >= own:
            self.bounds.breakers.failed((name, server.config.hash), ServerUnavailableError(name, text))
        if record is not None and call.tool.effect is not Effect.READ and not record.has_left(call):
            return not_sent("timeout", f"No session with {name} was open within {seconds:.3g} s.")
        return failed(call, Observation.TIMED_OUT, "timeout", text)
