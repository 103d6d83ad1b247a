"""Tools that are told for which run, thread and tenant they are called."""

from dataclasses import dataclass, replace
from typing import Final

from mcp_gateway.path.stage import Stage, not_sent
from mcp_gateway.registration.known_servers import Directory
from starling.core.clock import Deadline
from starling.core.tools import CallRecord, ToolCall, ToolOutcome

RUN_ID: Final = "starling/run-id"
THREAD_ID: Final = "starling/thread-id"
TENANT: Final = "starling/tenant"


@dataclass(frozen=True, slots=True)
class RequiredContext:
    """Adds the ids to `_meta` of calls whose tool has `requires_context`; without a run and thread it isn't called."""

    directory: Directory
    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        if not self.directory.tool_options(call).requires_context:
            return await self.inner(call, deadline, record)
        if not (call.run_id and call.thread_id):
            return not_sent("no_context", f"{call.tool.full_name} has to be told the run and thread of a call.")
        context = {RUN_ID: call.run_id, THREAD_ID: call.thread_id, TENANT: call.tenant}
        return await self.inner(replace(call, meta={**call.meta, **context}), deadline, record)
