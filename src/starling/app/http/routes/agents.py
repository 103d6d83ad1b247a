"""Agents: all that runs can use, and the custom agents of the tenant."""

from typing import Annotated

from fastapi import APIRouter, Query

from starling.app.http.dependencies import Caller, ChangeActor, FromServices, TeamCaller
from starling.app.http.problems import refusals
from starling.app.http.schemas import Name
from starling.app.registry.agents import AgentHistory, AgentList, ArchivedAgent, CreatedAgent
from starling.core.agents import LLMAgentConfig

router = APIRouter(prefix="/v1/agents", tags=["agents"])


@router.get("", summary="List or find agents", responses=refusals(422))
async def list_agents(
    services: FromServices,
    caller: Caller,
    query: Annotated[
        str | None, Query(min_length=1, max_length=10_000, description="What an agent is needed for")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=200, description="How many agents fit the query best")] = 12,
) -> AgentList:
    """List what runs that are accepted now can use: specialists, builtins and your own agents, with their states.

    With `query`, list those that fit it best, with their scores.
    """
    return await (services.agents.list(caller) if query is None else services.agents.find(caller, query, limit))


@router.post("", status_code=201, summary="Create an agent", responses=refusals(409, 422))
async def create(
    config: LLMAgentConfig, services: FromServices, caller: TeamCaller, actor: ChangeActor
) -> CreatedAgent:
    """Create an agent or a new version of it for runs accepted from now on. It may call only what your key may call.

    The agent of another maker can be replaced with the scope `admin` only.
    """
    return await services.agents.create(caller, config, actor)


@router.get("/{name}", summary="Show an agent", responses=refusals(404))
async def show(name: Name, services: FromServices, caller: Caller) -> AgentHistory:
    """Show an agent and, if it is one of your own, all its versions."""
    return await services.agents.show(caller, name)


@router.delete("/{name}", summary="Archive an agent", responses=refusals(404))
async def archive(name: Name, services: FromServices, caller: TeamCaller, actor: ChangeActor) -> ArchivedAgent:
    """Archive a custom agent: runs accepted from now on don't see it. Its versions are kept.

    The agent of another maker can be archived with the scope `admin` only.
    """
    return await services.agents.archive(caller, name, actor)
