"""The routes of the API over the database, called within this process: for commands without a running platform."""

import logging
from collections.abc import Callable

import httpx

from starling.app.cli.signals import run_with
from starling.app.container.database import find_database
from starling.app.container.services import open_services
from starling.app.http.api_routes import make_app_for
from starling.app.services import Services
from starling.client.api import Api
from starling.core.principal import Principal, Scope
from starling.core.run_document.rows import EventRow
from starling.core.settings.schema import Settings
from starling.infra.postgres.runs.acceptance import RunKey

_URL = "http://cli"  # never connected to
_CLIENT = ("cli", 0)  # what the audit has as the origin of changes


class DatabaseApi(Api):
    """The API for a tenant of this machine, with all scopes; each request opens the database.

    Raises DatabaseUnavailableError, DatabaseUnsuitableError, and what the API refuses.
    """

    in_process = True

    def __init__(self, settings: Settings, tenant: str) -> None:
        super().__init__(_URL, transport=_Routes(settings, tenant))
        self.tenant = tenant
        self._settings = settings

    def watch(self, run_id: str, after: int, on_event: Callable[[EventRow], None]) -> None:
        """Pass on each event after number `after`: a response of routes in this process can't be read as a stream."""
        key = RunKey(self.tenant, run_id)

        async def read(services: Services) -> None:
            await services.runs.documents.row(key)
            async for event in services.runs.reader.follow(key, after=after):
                on_event(event)

        run_with(open_services(self._settings, find_database(self._settings)), read)


class _Routes(httpx.BaseTransport):
    """Answers requests by the routes of the API."""

    def __init__(self, settings: Settings, tenant: str) -> None:
        self._settings = settings
        self._caller = Principal(tenant, "", frozenset(Scope), on_host=True)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return the answer to a request, read to its end."""
        logging.getLogger("mcp_gateway.registration.catalog").setLevel(logging.ERROR)  # its warnings are in the answer

        async def send(services: Services) -> httpx.Response:
            transport = httpx.ASGITransport(make_app_for(services, self._caller), client=_CLIENT)
            async with httpx.AsyncClient(transport=transport) as client:
                return await client.send(request)

        answer = run_with(open_services(self._settings, find_database(self._settings)), send)
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)
