"""What routes need, typed, and how they get it."""

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request

from starling.app.container import Store
from starling.core.principal import DEFAULT_TENANT, Principal, Scope

_KEYLESS = Principal(DEFAULT_TENANT, key_id="", scopes=frozenset(Scope))


@dataclass(frozen=True, slots=True)
class Api:
    """The application's own state."""

    store: Store


def _api(request: Request) -> Api:
    return cast("Api", request.app.state.api)


async def _store(request: Request) -> Store:
    return _api(request).store


async def _principal() -> Principal:
    """Whoever reaches us without a key is on this machine: the guard saw to that."""
    return _KEYLESS


type FromStore = Annotated[Store, Depends(_store)]
type Caller = Annotated[Principal, Depends(_principal)]
