"""Agents: all that runs can use, and the custom agents of the tenant."""

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict

from brain.registry.cards import AgentKind
from starling.app.http.dependencies import Caller, FromServices, TeamCaller
from starling.app.http.problems import Problem
from starling.app.http.schemas import Name
from starling.core.agents import LLMAgentConfig
from starling.core.principal import Principal
from starling.infra.postgres.audit import Actor

router = APIRouter(prefix="/v1/agents", tags=["agents"])


_VERSION = "3f1c7a52d8e94b06a7c5f2e1d0b98a76543210fedcba98765432100123456789"
_EXAMPLE: Final[dict[str, Any]] = {
    "name": "release_notes",
    "kind": "custom",
    "description": "You write release notes: short, in the present tense, for users",
    "state": "ready",
    "reason": "",
    "tools": ["git.git_log"],
    "version": _VERSION,
}
_CONFIG: Final[dict[str, Any]] = {
    "id": "release_notes",
    "behavior_template": "You write release notes: short, in the present tense, for users.",
    "tools": ["git.git_log"],
}


class Agent(BaseModel):
    """An agent as the supervisor sees it. `reason` states why it can't work; only custom agents have a `version`."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    name: str
    kind: AgentKind
    description: str
    state: Literal["ready", "degraded", "archived"]
    reason: str = ""
    tools: tuple[str, ...] = ()
    version: str | None = None


class Version(BaseModel):
    """One configuration of a custom agent: its hash, and when it was first stored."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    version: str
    created_at: datetime
    active: bool
    config: LLMAgentConfig


class AgentHistory(BaseModel):
    """An agent with all its versions, oldest first; only custom agents have versions."""

    model_config = ConfigDict(
        frozen=True,
        from_attributes=True,
        json_schema_extra={
            "examples": [
                {
                    "agent": _EXAMPLE,
                    "versions": [
                        {
                            "version": _VERSION,
                            "created_at": "2026-11-20T11:12:01.250000Z",
                            "active": True,
                            "config": _CONFIG,
                        }
                    ],
                }
            ]
        },
    )

    agent: Agent
    versions: tuple[Version, ...]


class FoundAgent(Agent):
    """An agent that fits a query: its score, the sum of `parts`, and the `tool` that fits best.

    Each part is the weighted z-score of one similarity among all agents: of words, of characters within words and,
    where vectors are used, of meaning; each with the whole card and with the best tool.
    """

    score: float
    parts: dict[str, float]
    tool: str


class Agents(BaseModel):
    """All agents of a tenant in the active epoch, or those that fit a query, best first, out of `total`.

    `warning` says why a query was answered by words alone.
    """

    model_config = ConfigDict(
        frozen=True, from_attributes=True, json_schema_extra={"examples": [{"epoch": 4, "agents": [_EXAMPLE]}]}
    )

    epoch: int
    agents: tuple[FoundAgent | Agent, ...]
    total: int | None = None
    warning: str = ""


class Created(BaseModel):
    """A stored configuration: its version, and the first epoch that has it.

    `left_out` are the tools that it asked for and that the key of its maker may not call.
    """

    model_config = ConfigDict(
        frozen=True,
        from_attributes=True,
        json_schema_extra={
            "examples": [
                {
                    "name": "release_notes",
                    "version": _VERSION,
                    "epoch": 4,
                    "tools": ["git.git_log"],
                    "left_out": ["github.*"],
                }
            ]
        },
    )

    name: str
    version: str
    epoch: int
    tools: tuple[str, ...]
    left_out: tuple[str, ...]


class Archived(BaseModel):
    """An archived agent, and the first epoch without it."""

    model_config = ConfigDict(
        frozen=True, from_attributes=True, json_schema_extra={"examples": [{"name": "release_notes", "epoch": 5}]}
    )

    name: str
    epoch: int


@router.get("", summary="List or find agents", responses={422: {"model": Problem}})
async def list_agents(
    services: FromServices,
    caller: Caller,
    query: Annotated[
        str | None, Query(min_length=1, max_length=10_000, description="What an agent is needed for")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=200, description="How many agents fit the query best")] = 12,
) -> Agents:
    """List what runs that are accepted now can use: specialists, builtins and your own agents, with their states.

    With `query`, list those that fit it best, with their scores.
    """
    found = await (services.agents.list(caller) if query is None else services.agents.find(caller, query, limit))
    return Agents.model_validate(found)


@router.post(
    "", status_code=201, summary="Create an agent", responses={409: {"model": Problem}, 422: {"model": Problem}}
)
async def create(config: LLMAgentConfig, request: Request, services: FromServices, caller: TeamCaller) -> Created:
    """Create an agent or a new version of it for runs accepted from now on. It may call only what your key may call."""
    return Created.model_validate(await services.agents.create(caller, config, _actor(caller, request)))


@router.get("/{name}", summary="Show an agent", responses={404: {"model": Problem}})
async def show(name: Name, services: FromServices, caller: Caller) -> AgentHistory:
    """Show an agent and, if it is one of your own, all its versions."""
    return AgentHistory.model_validate(await services.agents.show(caller, name))


@router.delete("/{name}", summary="Archive an agent", responses={404: {"model": Problem}})
async def archive(name: Name, request: Request, services: FromServices, caller: TeamCaller) -> Archived:
    """Archive a custom agent: runs accepted from now on don't see it. Its versions are kept."""
    return Archived.model_validate(await services.agents.archive(caller.tenant, name, _actor(caller, request)))


def _actor(caller: Principal, request: Request) -> Actor:
    return Actor.caller(caller, request.client.host if request.client else "")
