"""What follows a call, as the tool's `post_effects` say."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import assert_never

from mcp_gateway.configuration.options import EmitEvent, InvalidateCache
from mcp_gateway.path.stage import Stage
from mcp_gateway.registration.known_servers import Directory
from starling.core.clock import Deadline
from starling.core.tool_calls import CallState, Observation, state_after_answer
from starling.core.tools import CallRecord, ToolCall, ToolOutcome

type Invalidate = Callable[[str, str], Awaitable[None]]
"""Makes every process forget the results that a tool, by its full name, had for a tenant (given first)."""

type Relist = Callable[[str], None]
"""Begins to list the tools of a server again."""


@dataclass(frozen=True, slots=True)
class PostEffects:
    """Invalidates after every call that may have changed something; lists and emits events after one that succeeded.

    It comes before the outcome is recorded, so that an event is emitted once, with the call's result.
    """

    directory: Directory
    invalidate: Invalidate
    relist: Relist
    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        outcome = await self.inner(call, deadline, record)
        effects = self.directory.tool_options(call).post_effects
        # where it is proven that the call was not done; for `read` tools, whatever has failed counts as that
        if not effects or state_after_answer(outcome.observation, call.tool.effect) is CallState.FAILED:
            return outcome
        succeeded = outcome.observation is Observation.COMPLETED
        events: list[str] = []
        for effect in effects:
            match effect:
                case InvalidateCache():
                    await self.invalidate(call.tenant, f"{call.tool.server}.{effect.invalidate}")
                case "relist":
                    if succeeded:
                        self.relist(call.tool.server)
                case EmitEvent():
                    events += [effect.event] if succeeded else []
                case _:
                    assert_never(effect)
        return replace(outcome, events=tuple(events)) if events else outcome
