"""The application of a platform whose services are open, with all routes from the start."""

import socket
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager

import aiohttp
from fastapi import APIRouter, FastAPI

from starling.app.http import app
from starling.app.http.api_routes import ROUTERS
from starling.app.http.authentication import AccessControl, open_access_control
from starling.app.http.listener import bind
from starling.app.http.route_loading import add_routes
from starling.app.http.uvicorn_server import serving
from starling.app.services import Services
from starling.core.settings.schema import Settings
from tests.support.http_client import ApiClient
from tests.support.local_access import AS_ADMIN, TOKEN


def make_app(services: Services, version: str, access: AccessControl) -> FastAPI:
    """Return the application."""

    async def loaded(*, every: bool) -> tuple[Sequence[APIRouter], object]:
        return ROUTERS, services

    made = app.make_app(services.storage, version, access, services.runs.acceptance.limits.input_chars, loaded)
    add_routes(made, ROUTERS, services)
    return made


@asynccontextmanager
async def served_api(
    settings: Settings,
    services: Services,
    listener: socket.socket | None = None,
    headers: Mapping[str, str] = AS_ADMIN,
) -> AsyncGenerator[ApiClient]:
    """Serve the API on a port of its own, or on `listener`; give a client of it that sends these headers."""
    async with (
        open_access_control(settings, services.storage.keys, TOKEN) as access,
        serving(make_app(services, "test", access), listener or bind("127.0.0.1", 0)) as url,
        aiohttp.ClientSession(url, headers=headers) as client,
    ):
        yield ApiClient(url, client)
