"""Typed dependencies of routes."""

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, FastAPI, Header, Request

from starling.app.container.services import Services
from starling.app.http.authentication import RequireScope, optional_caller
from starling.core.principal import Principal, Scope
from starling.infra.postgres.audit import Actor


@dataclass(slots=True)
class AppState:
    """State of the application."""

    services: Services
    draining: bool = False


def drain(app: FastAPI) -> None:
    """Make `/ready` answer from now on that this process is stopping."""
    cast("AppState", app.state.api).draining = True


async def _api(request: Request) -> AppState:
    return cast("AppState", request.app.state.api)


async def _store(request: Request) -> Services:
    return (await _api(request)).services


async def _actor(request: Request) -> Actor:
    """Return the caller as the author of a change."""
    caller = await optional_caller(request)
    assert caller is not None  # only open paths, which change nothing, are called without a principal
    return Actor.caller(caller, request.client.host if request.client else "")


type FromAppState = Annotated[AppState, Depends(_api)]
type FromServices = Annotated[Services, Depends(_store)]

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
type Admin = Annotated[Principal, Depends(RequireScope(Scope.ADMIN))]
type TeamCaller = Annotated[Principal, Depends(RequireScope(Scope.TEAMS))]
type TeamReader = Annotated[Principal, Depends(RequireScope(Scope.TEAMS, Scope.ADMIN))]
type OptionalCaller = Annotated[Principal | None, Depends(optional_caller)]
type ChangeActor = Annotated[Actor, Depends(_actor)]
