"""Routes that are added while requests wait for them."""

import asyncio
from collections.abc import Sequence
from typing import Final, cast

import httpx
from fastapi import APIRouter, FastAPI

from starling.app.http.app_state import AppState
from starling.app.http.route_loading import HoldForRoutes, append_routes
from starling.app.storage import Storage

_RUNS: Final = APIRouter()
_OTHERS: Final = APIRouter()


@_RUNS.post("/v1/agent/run")
async def _run() -> str:
    return "a run"


@_OTHERS.get("/v1/agents")
async def _agents() -> str:
    return "the agents"


class _Loading:
    """Has the routes of runs at once, and the others once `loaded` is set."""

    def __init__(self) -> None:
        self.loaded = asyncio.Event()

    async def routes(self, *, every: bool) -> tuple[Sequence[APIRouter], object]:
        if not every:
            return (_RUNS,), object()
        await self.loaded.wait()
        return (_RUNS, _OTHERS), object()


async def test_request_for_a_run_is_answered_while_others_wait_for_their_routes() -> None:
    loading = _Loading()
    async with _client(loading) as client:
        listing = asyncio.ensure_future(client.get("/v1/agents"))
        runs = [await client.post("/v1/agent/run") for _ in range(2)]
        waited = not listing.done()
        loading.loaded.set()
        agents = await listing
        again = await client.post("/v1/agent/run")

    assert [answer.json() for answer in (*runs, agents, again)] == ["a run", "a run", "the agents", "a run"]
    assert waited


async def test_routes_are_added_once_when_several_requests_waited_for_them() -> None:
    loading = _Loading()
    async with _client(loading) as client:
        waiting = [asyncio.ensure_future(client.get("/v1/agents")) for _ in range(3)]
        await asyncio.sleep(0)
        loading.loaded.set()
        for answer in waiting:
            assert (await answer).json() == "the agents"
        paths = (await client.get("/openapi.json")).json()["paths"]

    assert list(paths) == ["/v1/agent/run", "/v1/agents"]


def test_routes_are_added_as_they_were_built() -> None:
    app = FastAPI(openapi_url=None)

    append_routes(app, _RUNS)

    assert app.routes == _RUNS.routes


def _client(loading: _Loading) -> httpx.AsyncClient:
    app = FastAPI()
    app.state.api = AppState(cast("Storage", None))
    app.add_middleware(HoldForRoutes, app=app, loaded=loading.routes)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")
