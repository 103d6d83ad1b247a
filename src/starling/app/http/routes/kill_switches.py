"""Kill switches: stop the calls of an agent, a server or a tenant in every run."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from starling.app.http.dependencies import Admin, ChangeActor, FromServices
from starling.app.http.problems import refusals
from starling.app.http.schemas import ClosedModel, Name
from starling.core.principal import SHARED
from starling.infra.postgres.kill_switches import Switch, SwitchKind, Target

type Tenant = Annotated[Name, Field(description="The tenant for which an agent or server is off; `*`: all tenants.")]

router = APIRouter(prefix="/v1/switches", tags=["switches"], responses=refusals(422))


class SwitchOff(ClosedModel):
    """What is to be switched off, and the reason. The tenant `*` means all tenants."""

    kind: SwitchKind
    name: Name
    tenant: Tenant = SHARED
    reason: Annotated[str, Field(min_length=1, max_length=500, description="The reason; callers and models see it.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchedOff(Switch):
    """The new switch. `known` is false if no such tenant, agent or server exists now: `missing` is the part of it."""

    known: bool
    missing: Target | None


@dataclass(frozen=True, slots=True)
class SwitchList:
    """All switches, the latest first."""

    switches: Sequence[Switch]


@router.get("", summary="List kill switches")
async def every(_: Admin, services: FromServices) -> SwitchList:
    """List what is switched off."""
    return SwitchList(await services.storage.switches.every())


@router.put("", summary="Create a kill switch")
async def off(wanted: SwitchOff, _: Admin, actor: ChangeActor, services: FromServices) -> SwitchedOff:
    """Stop all tool calls by an agent, to a server or for a tenant: within two seconds, in every run.

    Calls that were already sent are completed. Repeating the request changes the reason. A target that does not exist
    yet (`known` is false) is switched off as soon as it exists.
    """
    target = Target(wanted.kind, wanted.name, wanted.tenant)
    switch = await services.storage.switches.off(target, wanted.reason, actor)
    missing = await services.switch_targets.missing(target)
    return SwitchedOff(**asdict(switch), known=missing is None, missing=missing)


@router.delete("", status_code=204, summary="Delete a kill switch", responses=refusals(404))
async def on(
    kind: Annotated[SwitchKind, Query()],
    name: Annotated[Name, Query()],
    _: Admin,
    actor: ChangeActor,
    services: FromServices,
    tenant: Annotated[Tenant, Query()] = SHARED,
) -> None:
    """Allow tool calls again."""
    await services.storage.switches.on(Target(kind, name, tenant), actor)
