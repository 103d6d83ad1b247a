"""The registry: list epochs; plan, reload and roll back servers."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Self

from fastapi import APIRouter, Body, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from brain.registry.manifest import Changes, Names
from mcp_gateway.configuration.servers import McpConfig, parse_config
from starling.app.http.dependencies import Admin, FromServices
from starling.app.http.problems import Problem
from starling.app.http.prompt_bodies import WORDING, Wording
from starling.app.registry import service as registry
from starling.core.errors import ConfigurationError, InvalidRequestError
from starling.core.principal import Principal
from starling.core.tools import ServerSource
from starling.infra.postgres.audit import Actor

router = APIRouter(prefix="/v1/registry", tags=["registry"], responses={422: {"model": Problem}})

_CHANGES = Changes(
    servers=Names(added=("time",)),
    tools={"time": Names(added=("convert_time", "get_current_time"))},
    agents=Names(added=("mcp_agent_time",)),
).model_dump(mode="json")
_DOCUMENT: dict[str, Any] = {"mcpServers": {"time": {"command": "mcp-server-time", "x-starling": {"effect": "read"}}}}
_REPORT: dict[str, Any] = {
    "epoch": 4,
    "changed": True,
    "changes": _CHANGES,
    "warnings": {"git": "'git-mcp' isn't installed or not on PATH."},
    "broken_agents": {},
    "quarantined": {"time": {"convert_time": "Its definition was changed by its server: description."}},
    "broken_teams": {"default/researcher": "historian: Its server 'git' was removed."},
    "tool_settings": {"time.get_current_time": ["cache_ttl"]},
    "prompts": {"supervisor": {"before": WORDING | {"version": 3}, "after": WORDING}},
    "prompt_warnings": {"qa": "Langfuse's `agent_qa`, version 2, can't be used: It lacks the variable {{results}}."},
}
_EPOCH: dict[str, Any] = {
    "number": 4,
    "hash": "9b3f0d3c7f0b1f0e6b1f0e9d4f7c2a51c8e3d6b7a4f5e2d1c0b9a8f7e6d5c4b3",
    "active": False,
    "created_at": "2026-11-20T11:12:01.250000Z",
    "closed_at": "2026-11-20T12:30:00.750000Z",
    "actor": "k7m2p9",
    "origin": "10.0.0.7",
    "changes": _CHANGES,
    "runs": 0,
}


class ServersDocument(BaseModel):
    """The content of an `mcpServers` file; other top-level keys are ignored."""

    model_config = ConfigDict(
        extra="ignore",
        frozen=True,
        json_schema_extra={
            "examples": [_DOCUMENT],
        },
    )

    servers: dict[str, dict[str, Any]] = Field(alias="mcpServers")


_AnyDocument = Annotated[ServersDocument | None, Body(examples=[_DOCUMENT])]


class HowToRead(BaseModel):
    """How a document is compared with the active epoch."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    relist: bool = Field(False, description="Also list servers with an unchanged configuration again.")


class ListQuery(BaseModel):
    """The length of the list of epochs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: int = Field(20, ge=1, le=1000)


class Rollback(BaseModel):
    """The epoch to return to; without a number, the one before servers last changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra={"examples": [{"number": 3}]})

    number: Annotated[int, Field(ge=1, lt=2**63, strict=True)] | None = None


class PromptChange(BaseModel):
    """The wording of a prompt before and after a change."""

    before: Wording | None
    after: Wording | None


class Report(BaseModel):
    """The active epoch, the changes that were made or would be made, and the faults of the result.

    `warnings` say which servers can't be listed and why, `broken_agents` which custom agents can't work then, by
    `tenant/name`, and `broken_teams` which members of teams can't, or only without some of their tools.
    `tool_settings` names the settings that were set for single tools, by full name: they win over the document.
    `quarantined` are tools of servers that are offered to nobody until they are approved, with the reasons.
    `prompts` has the wording before and after of each prompt that changed; `prompt_warnings` says, by prompt or for
    the source `langfuse`, why a text isn't used.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [_REPORT]})

    epoch: int
    changed: bool
    changes: Changes
    warnings: dict[str, str]
    broken_agents: dict[str, str]
    broken_teams: dict[str, str] = {}
    tool_settings: dict[str, tuple[str, ...]] = {}
    quarantined: dict[str, dict[str, str]] = {}
    prompts: dict[str, PromptChange] = {}
    prompt_warnings: dict[str, str] = {}

    @classmethod
    def of(cls, report: registry.Report) -> Self:
        """Return the response body of a report."""
        return cls(
            epoch=report.epoch,
            changed=bool(report.changes),
            changes=report.changes,
            warnings=dict(report.warnings),
            broken_agents=dict(report.broken_agents),
            broken_teams=dict(report.broken_teams),
            tool_settings=dict(report.tool_settings),
            quarantined={server: dict(tools) for server, tools in report.quarantined.items()},
            prompts={name: PromptChange.model_validate(asdict(one)) for name, one in report.prompts.items()},
            prompt_warnings=dict(report.prompt_warnings),
        )


class EpochSummary(BaseModel):
    """An epoch: its actor and origin, its changes, and the number of unfinished runs that use it."""

    number: int
    hash: str
    active: bool
    created_at: datetime
    closed_at: datetime | None
    actor: str
    origin: str
    changes: Changes
    runs: int


class Epochs(BaseModel):
    """The latest epochs, newest first."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"epochs": [_EPOCH]}]})

    epochs: list[EpochSummary]


@router.get("", summary="List epochs")
async def epochs(_: Admin, services: FromServices, wanted: Annotated[ListQuery, Query()]) -> Epochs:
    """List the latest epochs."""
    found = await services.epochs.latest(wanted.limit)
    return Epochs(epochs=[EpochSummary.model_validate(asdict(record)) for record in found])


@router.post("/plan", summary="Plan a reload")
async def plan(
    request: Request,
    caller: Admin,
    services: FromServices,
    how: Annotated[HowToRead, Query()],
    _document: _AnyDocument = None,
) -> Report:
    """Compare a document, and the texts that prompts have at their sources, with the active epoch.

    Servers that are new or changed are listed. Without a document servers stay as they are.

    Processes are started for that only for an admin of the platform's machine, who sends the local token.
    """
    with _fault_of_the_document():
        config = await _config(request)
        if config is None:
            return Report.of(await services.registry.plan_prompts())
        return Report.of(await services.registry.plan(config, relist=how.relist, source=_source(caller)))


@router.post("/reload", summary="Reload the registry")
async def reload(
    request: Request,
    caller: Admin,
    services: FromServices,
    how: Annotated[HowToRead, Query()],
    _document: _AnyDocument = None,
) -> Report:
    """Apply the changes that a plan of the same document lists. Servers that were added separately stay unchanged.

    Without a document all servers stay unchanged, and only prompts are taken.

    Prompts take the texts that their sources have now. New or changed stdio servers are accepted from an admin of the
    platform's machine, who sends the local token; from others only where the setting `stdio_over_http` allows their
    command, else the answer is 403.
    """
    with _fault_of_the_document():
        config, actor = await _config(request), _actor(caller, request)
        if config is None:
            return Report.of(await services.registry.reload_prompts(actor))
        done = await services.registry.reload(
            config, actor, relist=how.relist, source=_source(caller), with_prompts=True
        )
        return Report.of(done)


@router.post("/rollback", summary="Roll back to an earlier epoch", responses={404: {"model": Problem}})
async def rollback(wanted: Rollback, request: Request, caller: Admin, services: FromServices) -> Report:
    """Create a new epoch with the servers of an earlier one. Custom agents and teams of tenants stay unchanged."""
    actor = _actor(caller, request)
    return Report.of(await services.registry.rollback(wanted.number, actor, source=_source(caller)))


async def _config(request: Request) -> McpConfig | None:
    """Read the body as a file is read, which refuses repeated names; None if it is empty. Raises ConfigurationError."""
    body = await request.body()
    if not body.strip():
        return None
    return parse_config(body.decode(json.detect_encoding(body), "surrogatepass"), "The document")


@contextmanager
def _fault_of_the_document() -> Generator[None]:
    try:
        yield
    except ConfigurationError as error:  # what a file would be to blame for at the command line
        raise InvalidRequestError(error.message, "Correct the document; nothing was changed.") from None


def _source(caller: Principal) -> ServerSource:
    """Return what a document of a caller counts as: an admin of the machine could write it to a file there."""
    return "file" if caller.on_host else "api"


def _actor(caller: Principal, request: Request) -> Actor:
    return Actor.caller(caller, request.client.host if request.client else "")
