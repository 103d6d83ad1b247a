"""What routes need, typed, and how they get it."""

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, FastAPI, Header, Request

from starling.app.container import Store
from starling.app.http.authentication import Requires, visitor
from starling.core.principal import Principal, Scope


@dataclass(slots=True)
class Api:
    """The application's own state."""

    store: Store
    draining: bool = False


def drain(app: FastAPI) -> None:
    """Have `/ready` say from now on that this process is being stopped."""
    cast("Api", app.state.api).draining = True


async def _api(request: Request) -> Api:
    return cast("Api", request.app.state.api)


async def _store(request: Request) -> Store:
    return (await _api(request)).store


type FromApi = Annotated[Api, Depends(_api)]
type FromStore = Annotated[Store, Depends(_store)]

type IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        pattern=r"^[ -~]+$",
        description="Yours, printable ASCII. The same request with the same key leads to the same run, however often.",
        examples=["order-4711"],
    ),
]

# Each route declares by one of these who may call it; a test looks at all of them.
type Caller = Annotated[Principal, Depends(Requires(Scope.RUN))]
type Admin = Annotated[Principal, Depends(Requires(Scope.ADMIN))]
type ServerAdmin = Annotated[Principal, Depends(Requires(Scope.SERVERS))]
type TeamMaker = Annotated[Principal, Depends(Requires(Scope.TEAMS))]
type Visitor = Annotated[Principal | None, Depends(visitor)]
