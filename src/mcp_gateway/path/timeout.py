"""No call takes longer than it may, whatever the server does."""

import asyncio
from dataclasses import dataclass

from mcp_gateway.directory import Directory
from mcp_gateway.path.stage import NOTHING_DONE, Step, cut_off, failed
from starling.core.clock import Deadline
from starling.core.tools import ToolCall, ToolOutcome


@dataclass(frozen=True, slots=True)
class Timeout:
    """Ends a call after the server's own `timeout`, else `seconds`, and never later than the deadline."""

    directory: Directory
    seconds: float
    inner: Step

    async def __call__(self, call: ToolCall, deadline: Deadline) -> ToolOutcome:
        seconds = deadline.cap(self._allowed(call.tool.server))
        if seconds <= 0:
            return failed("timeout", f"The run's time is used up. {NOTHING_DONE}")
        try:
            async with asyncio.timeout(seconds):
                return await self.inner(call, deadline)
        except TimeoutError:
            return cut_off(call, "timeout", f"{call.tool.full_name} didn't answer within {seconds:.3g} s.")

    def _allowed(self, server: str) -> float:
        known = self.directory.server(server)
        return (known and known.config.options.timeout) or self.seconds
