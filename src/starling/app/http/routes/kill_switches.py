"""Kill switches: stop the calls of an agent, a server or a tenant in every run."""

from datetime import datetime
from typing import Annotated, Any, Self

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from starling.app.http.dependencies import Admin, FromServices
from starling.app.http.problems import Problem
from starling.app.http.schemas import Name
from starling.core.principal import SHARED
from starling.infra.postgres import kill_switches as switches
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.kill_switches import SwitchKind, Target

type Tenant = Annotated[Name, Field(description="The tenant for which an agent or server is off; `*`: all tenants.")]

router = APIRouter(prefix="/v1/switches", tags=["switches"], responses={422: {"model": Problem}})

_OFF: dict[str, Any] = {"kind": "server", "name": "time", "reason": "It tells the wrong time."}
_MADE: dict[str, Any] = {**_OFF, "tenant": "*", "actor": "local", "created_at": "2026-11-20T11:12:01.250000Z"}


class SwitchOff(BaseModel):
    """What is to be switched off, and the reason. The tenant `*` means all tenants."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra={"examples": [_OFF]})

    kind: SwitchKind
    name: Name
    tenant: Tenant = SHARED
    reason: Annotated[str, Field(min_length=1, max_length=500, description="The reason; callers and models see it.")]


class Switch(BaseModel):
    """Something that is switched off."""

    kind: SwitchKind
    name: str
    tenant: str
    reason: str
    actor: str
    created_at: datetime

    @classmethod
    def of(cls, found: switches.Switch) -> Self:
        """Return the response body of a switch."""
        return cls(
            kind=found.target.kind,
            name=found.target.name,
            tenant=found.target.owner,
            reason=found.reason,
            actor=found.actor,
            created_at=found.created_at,
        )


class Missing(BaseModel):
    """Something that does not exist now; agents and servers of `tenant`, `*` for any."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    kind: SwitchKind
    name: str
    tenant: str


class SwitchedOff(Switch):
    """The new switch. `known` is false if no such tenant, agent or server exists now: `missing` is the part of it."""

    model_config = ConfigDict(json_schema_extra={"examples": [{**_MADE, "known": True, "missing": None}]})

    known: bool
    missing: Missing | None


class Switches(BaseModel):
    """All switches, the latest first."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"switches": [_MADE]}]})

    switches: list[Switch]


@router.get("", summary="List kill switches")
async def every(_: Admin, services: FromServices) -> Switches:
    """List what is switched off."""
    return Switches(switches=[Switch.of(found) for found in await services.switches.every()])


@router.put("", summary="Create a kill switch")
async def off(wanted: SwitchOff, request: Request, caller: Admin, services: FromServices) -> SwitchedOff:
    """Stop all tool calls by an agent, to a server or for a tenant: within two seconds, in every run.

    Calls that were already sent are completed. Repeating the request changes the reason. A target that does not exist
    yet (`known` is false) is switched off as soon as it exists.
    """
    target = Target(wanted.kind, wanted.name, wanted.tenant)
    actor = Actor.caller(caller, request.client.host if request.client else "")
    switch = Switch.of(await services.switches.off(target, wanted.reason, actor))
    missing = await services.switch_targets.missing(target)
    return SwitchedOff(
        **dict(switch), known=missing is None, missing=None if missing is None else Missing.model_validate(missing)
    )


@router.delete("", status_code=204, summary="Delete a kill switch", responses={404: {"model": Problem}})
async def on(
    kind: Annotated[SwitchKind, Query()],
    name: Annotated[Name, Query()],
    request: Request,
    caller: Admin,
    services: FromServices,
    tenant: Annotated[Tenant, Query()] = SHARED,
) -> None:
    """Allow tool calls again."""
    actor = Actor.caller(caller, request.client.host if request.client else "")
    await services.switches.on(Target(kind, name, tenant), actor)
