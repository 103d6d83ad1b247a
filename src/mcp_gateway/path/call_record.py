"""The record that a run keeps of calls which may change something, and the tool that is asked where it is unclear."""

from dataclasses import dataclass, replace
from functools import partial

from pydantic import BaseModel, ConfigDict, StrictBool, ValidationError

from mcp_gateway.path.stage import Stage
from mcp_gateway.registration.known_servers import Directory
from starling.core.clock import Deadline
from starling.core.tool_calls import Effect, Observation
from starling.core.tools import CallFinding, CallRecord, ToolCall, ToolOutcome


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore")

    done: StrictBool
    result: str = ""


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Asks the tool that the admin named under `reconcile`, in its present version, whether a call was done.

    It is a read on behalf of the platform: the run's grant isn't checked.
    """

    directory: Directory
    path: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline) -> CallFinding | None:
        """Return what that tool answers, None where there is none or its answer isn't clear."""
        server, name = self.directory.server(call.tool.server), self.directory.tool_options(call).reconcile
        tool = next((tool for tool in server.listing.tools if tool.name == name), None) if server and name else None
        if tool is None:
            return None
        question = ToolCall(
            f"{call.id}.found",
            call.run_id,
            call.path,
            replace(tool, effect=Effect.READ),
            {"key": call.idempotency_key, "arguments": call.arguments},
            tenant=call.tenant,
            thread_id=call.thread_id,
        )
        outcome = await self.path(question, deadline, None)
        if outcome.status == "failed" or outcome.data is None:
            return None
        try:
            answer = _Answer.model_validate(outcome.data)
        except ValidationError:
            return None
        observation = Observation.FOUND_DONE if answer.done else Observation.FOUND_NOT_DONE
        return CallFinding(observation, answer.result, tool.full_name)


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """Consults the run's record before and after the call: one that has an outcome already isn't made again.

    The record gets the outcome before it is used.
    """

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
