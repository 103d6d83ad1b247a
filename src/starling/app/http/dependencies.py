"""Typed dependencies of routes."""

from typing import Annotated, cast

from fastapi import Depends, Header, Request

from starling.app.http.app_state import FromAppState, OptionalCaller
from starling.app.http.authentication import RequireScope, optional_caller
from starling.app.services import Services
from starling.core.principal import Principal, Scope
from starling.infra.postgres.audit import Actor


async def _services(state: FromAppState) -> Services:
    return cast("Services", state.services)


async def _actor(request: Request) -> Actor:
    """Return the caller as the author of a change."""
    caller = await optional_caller(request)
    assert caller is not None  # only open paths, which change nothing, are called without a principal
    return Actor.caller(caller, request.client.host if request.client else "")


async def _any_caller(caller: OptionalCaller) -> Principal:
    """Return the caller, whatever its scopes; not for open paths."""
    assert caller is not None
    return caller


type FromServices = Annotated[Services, Depends(_services)]

type IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        pattern=r"^[ -~]+$",
        description="Any printable ASCII. Repeating the request with the same key returns the same run.",
        examples=["order-4711"],
    ),
]

# Each route declares its caller by one of these; a test checks that every route does.
type Caller = Annotated[Principal, Depends(RequireScope(Scope.RUN))]
type RunLister = Annotated[Principal, Depends(RequireScope(Scope.RUN, Scope.ADMIN))]
type ToolCaller = Annotated[Principal, Depends(RequireScope(Scope.RUN, Scope.SERVICE))]
type AnyCaller = Annotated[Principal, Depends(_any_caller)]
type Admin = Annotated[Principal, Depends(RequireScope(Scope.ADMIN))]
type TeamCaller = Annotated[Principal, Depends(RequireScope(Scope.TEAMS))]
type TeamReader = Annotated[Principal, Depends(RequireScope(Scope.TEAMS, Scope.ADMIN))]
type ChangeActor = Annotated[Actor, Depends(_actor)]
