"""The tools that runs can call, and single calls of them."""

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field

from starling.app.http.dependencies import FromServices, IdempotencyKey, ToolCaller
from starling.app.http.problems import refusals
from starling.app.http.schemas import ClosedModel
from starling.app.registry.agents import ToolList
from starling.app.tools import ToolExecution
from starling.core.runs import DirectCall

router = APIRouter(tags=["tools"], responses=refusals(503))


class Execution(ClosedModel):
    """A tool call. After `timeout` seconds the answer is `waiting`, and the run goes on."""

    tool_name: Annotated[str, Field(min_length=1, max_length=300, description="The full name: `server.tool`.")]
    arguments: dict[str, Any] = Field(default={})
    timeout: Annotated[float | None, Field(gt=0, le=3_600, description="Seconds.")] = None


@router.get("/tools", summary="List tools")
async def tools(services: FromServices, caller: ToolCaller) -> ToolList:
    """List the tools that `POST /execute` could call for you now, of all agents that can work."""
    return await services.agents.tools(caller)


@router.post("/execute", summary="Call a tool", responses=refusals(404, 409, 422))
async def execute(
    request: Execution, services: FromServices, caller: ToolCaller, idempotency_key: IdempotencyKey = None
) -> ToolExecution:
    """Call a tool, without any model. A call that may change something is a run, with its approvals and its record.

    Repeating such a request with the same `Idempotency-Key` returns what came of the same call. Results of reads
    are not kept.
    """
    call = DirectCall(tool=request.tool_name, arguments=request.arguments)
    return await services.tools.execute(caller, call, request.timeout, idempotency_key)
