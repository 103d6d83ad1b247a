"""The application of a platform whose services are open, with all routes from the start."""

from collections.abc import Sequence

from fastapi import APIRouter, FastAPI

from starling.app.http import app
from starling.app.http.api_routes import ROUTERS
from starling.app.http.authentication import AccessControl
from starling.app.http.route_loading import add_routes
from starling.app.services import Services


def make_app(services: Services, version: str, access: AccessControl) -> FastAPI:
    """Return the application."""

    async def loaded(*, every: bool) -> tuple[Sequence[APIRouter], object]:
        return ROUTERS, services

    made = app.make_app(services.storage, version, access, services.runs.acceptance.limits.input_chars, loaded)
    add_routes(made, ROUTERS, services)
    return made
