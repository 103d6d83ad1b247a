"""The tools that runs can call."""

from fastapi import APIRouter

from starling.app.http.dependencies import Caller, FromServices
from starling.app.http.problems import refusals
from starling.app.registry.agents import ToolList

router = APIRouter(tags=["tools"], responses=refusals(503))


@router.get("/tools", summary="List tools")
async def tools(services: FromServices, caller: Caller) -> ToolList:
    """List the tools that a run of yours could call now, of all agents that can work."""
    return await services.agents.tools(caller)
