"""The state of an application, for routes that answer before the others are loaded."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, FastAPI, Request

from starling.app.http.authentication import optional_caller
from starling.app.storage import Storage
from starling.core.diagnostics import Diagnostic
from starling.core.principal import Principal


@dataclass(slots=True)
class AppState:
    """State of the application. `services` are those of `starling.app.services`, once they are loaded.

    `routers` are those that were added to it later than the routes of health. `checks` are those of the doctor.
    """

    storage: Storage
    services: Any = None
    draining: bool = False
    checks: Callable[[], Awaitable[Sequence[Diagnostic]]] | None = None
    routers: list[APIRouter] = field(default_factory=list[APIRouter])


def state_of(app: FastAPI) -> AppState:
    """Return the state of an application."""
    return cast("AppState", app.state.api)


def drain(app: FastAPI) -> None:
    """Make `/ready` answer from now on that this process is stopping."""
    state_of(app).draining = True


async def _state(request: Request) -> AppState:
    return cast("AppState", request.app.state.api)


type FromAppState = Annotated[AppState, Depends(_state)]
type OptionalCaller = Annotated[Principal | None, Depends(optional_caller)]
