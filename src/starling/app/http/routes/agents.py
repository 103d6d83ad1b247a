"""Agents: all that runs can use, and those that the tenant makes itself."""

from fastapi import APIRouter, Request

from starling.app.http.dependencies import Caller, FromServices, TeamCaller
from starling.app.http.problems import Problem
from starling.app.registry.agents import AgentHistory, Agents, Archived, Created
from starling.app.runs.acceptance import Name
from starling.core.agents import LLMAgentConfig
from starling.core.principal import Principal
from starling.infra.postgres.audit import Actor

router = APIRouter(prefix="/v1/agents", tags=["agents"])


@router.get("", summary="List the agents")
async def list_agents(services: FromServices, caller: Caller) -> Agents:
    """List what runs that are accepted now can use: specialists, builtins and your own agents, with their states."""
    return await services.agents.list(caller)


@router.post("", status_code=201, summary="Make an agent", responses={422: {"model": Problem}})
async def create(config: LLMAgentConfig, request: Request, services: FromServices, caller: TeamCaller) -> Created:
    """Make an agent, or a new version of it. Runs that are accepted from now on know it; it can't do more than you."""
    return await services.agents.create(caller, config, _actor(caller, request))


@router.get("/{name}", summary="Show an agent", responses={404: {"model": Problem}})
async def show(name: Name, services: FromServices, caller: Caller) -> AgentHistory:
    """Show an agent and, if it is one of your own, all its versions."""
    return await services.agents.show(caller, name)


@router.delete("/{name}", summary="Archive an agent", responses={404: {"model": Problem}})
async def archive(name: Name, request: Request, services: FromServices, caller: TeamCaller) -> Archived:
    """Take an agent of your own away from runs that are accepted from now on. Its versions stay."""
    return await services.agents.archive(caller.tenant, name, _actor(caller, request))


def _actor(caller: Principal, request: Request) -> Actor:
    return Actor.caller(caller, request.client.host if request.client else "")
