"""What was done before, by earlier attempts at a task or by the original of a fork, is not done again unnoticed."""

from dataclasses import dataclass
from typing import Final

from mcp_gateway.path.stage import Stage
from starling.core.clock import Deadline
from starling.core.tools import CallRecord, ToolCall, ToolOutcome

_REUSED: Final = "[This was done by an earlier attempt: it wasn't done again.]"
_UNKNOWN_EFFECT: Final = (
    "[An earlier attempt made this call with these arguments: it wasn't made again, because it isn't known whether"
    " {tool.full_name} changes anything. An admin can say so: `starling server effects {tool.server} --propose`, or"
    " `starling server tool {tool.server} {tool.name} --set effect=read`.]"
)


@dataclass(frozen=True, slots=True)
class RepeatGuard:
    """Gives a call of a later attempt the result of an equal one that succeeded before, or has a person approve it.

    An approval is asked for where a call of the same tool with other arguments succeeded in an attempt that was
    rejected or failed, and in a fork where its original sent an equal one that this fork has not repeated; it takes
    the place of the tool's own one, which `approved` comes after.
    """

    inner: Stage
    approved: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        if record is None or call.resource:
            return await self.inner(call, deadline, record)
        may_repeat = call.attempt.is_later and call.tool.repeat != "made"
        is_known = call.tool.declared or call.tool.hinted is not None
        note = _REUSED if is_known else _UNKNOWN_EFFECT.format(tool=call.tool)
        if may_repeat and (outcome := record.reuse(call, note)) is not None:
            return outcome
        done = None
        if sent := record.sent_by_original(call):
            reason = f"The run that this is a fork of called {call.tool.full_name} with these arguments ({sent})."
        elif may_repeat and call.tool.repeat == "asked" and (done := record.done_before(call)):
            reason = f"{call.tool.full_name} was called before, by an attempt that was rejected or failed."
        else:
            return await self.inner(call, deadline, record)
        refusal = await record.approve(call, reason, done)
        return await self.approved(call, deadline, record) if refusal is None else refusal
