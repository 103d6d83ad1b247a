"""Bounds the time of a call, whatever its server does."""

import asyncio
from dataclasses import dataclass

from mcp_gateway.path.stage import Stage, failed, not_sent
from mcp_gateway.registration.known_servers import Directory
from starling.core.clock import Deadline
from starling.core.tool_calls import Effect, Observation
from starling.core.tools import CallRecord, ToolCall, ToolOutcome


@dataclass(frozen=True, slots=True)
class Timeout:
    """Ends a call after the `timeout` of its tool or server, else `seconds`, and never later than the deadline."""

    directory: Directory
    seconds: float
    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        server = self.directory.server(call.tool.server)
        seconds = deadline.cap((server and server.config.options.timeout_of(call.tool.name)) or self.seconds)
        if seconds <= 0:
            return not_sent("timeout", "The run's time is used up.")
        try:
            async with asyncio.timeout(seconds):
                return await self.inner(call, deadline, record)
        except TimeoutError:
            if record is not None and call.tool.effect is not Effect.READ and not record.has_left(call):
                return not_sent("timeout", f"No session with {call.tool.server} was open within {seconds:.3g} s.")
            text = f"{call.tool.full_name} didn't answer within {seconds:.3g} s."
            return failed(call, Observation.TIMED_OUT, "timeout", text)
