"""A call that may change something is written down before it leaves, and its outcome before it is used."""

from dataclasses import dataclass
from functools import partial

from mcp_gateway.path.reconciliation import Reconcile
from mcp_gateway.path.stage import Step
from starling.core.clock import Deadline
from starling.core.tool_calls import Effect
from starling.core.tools import ToolCall, ToolOutcome


@dataclass(frozen=True, slots=True)
class Ledger:
    """Asks the call's record before and after: a call that was made in an earlier life isn't made again."""

    reconcile: Reconcile
    inner: Step

    async def __call__(self, call: ToolCall, deadline: Deadline) -> ToolOutcome:
        if call.record is None or call.tool.effect is Effect.READ:
            return await self.inner(call, deadline)
        find = partial(self.reconcile, call, deadline)
        known = await call.record.dispatch(call, find)
        if known is not None:
            return known
        return await call.record.settle(call, await self.inner(call, deadline), find)
