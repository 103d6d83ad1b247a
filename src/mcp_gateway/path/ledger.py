"""A call that may change something is checked against the run's record, which gets its outcome before it is used."""

from dataclasses import dataclass
from functools import partial

from mcp_gateway.path.reconciliation import Reconciliation
from mcp_gateway.path.stage import Stage
from starling.core.clock import Deadline
from starling.core.tool_calls import Effect
from starling.core.tools import CallRecord, ToolCall, ToolOutcome


@dataclass(frozen=True, slots=True)
class LedgerStage:
    """Consults the run's record before and after the call: one that has an outcome already isn't made again."""

    reconcile: Reconciliation
    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        if record is None or call.tool.effect is Effect.READ:
            return await self.inner(call, deadline, record)
        find = partial(self.reconcile, call, deadline)
        known = await record.dispatch(call, find)
        if known is not None:
            return known
        return await record.settle(call, await self.inner(call, deadline, record), find)
