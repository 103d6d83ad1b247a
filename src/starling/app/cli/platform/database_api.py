"""The routes of the API over the database, called within this process: for commands without a running platform."""

import logging
from dataclasses import dataclass

import httpx

from starling.app.cli.platform.api_requests import JSON_LINES, Api, refusal
from starling.app.cli.signals import run_until_stopped
from starling.app.container.database import find_database
from starling.app.container.services import open_services
from starling.app.http.api_routes import make_app_for
from starling.core.principal import Principal, Scope
from starling.core.settings.schema import Settings

_URL = "http://cli"  # never connected to
_CLIENT = ("cli", 0)  # what the audit has as the origin of changes


@dataclass(frozen=True, slots=True)
class DatabaseApi(Api):
    """The API for a tenant of this machine, with all scopes; each request opens the database.

    Raises DatabaseUnavailableError, DatabaseUnsuitableError, and what the API refuses.
    """

    settings: Settings
    tenant: str

    @property
    def place(self) -> str:
        return "the database"

    def send(self, method: str, path: str, body: object = None, *, seconds: float | None = None) -> tuple[str, bytes]:
        """Return the media type and the content of the answer to a request that was not refused."""
        answer = run_until_stopped(self._exchange(method, path, body))
        if answer.is_error:
            raise refusal(path, answer.status_code, answer.content)
        return answer.headers.get("content-type", "").partition(";")[0], answer.content

    async def _exchange(self, method: str, path: str, body: object) -> httpx.Response:
        logging.getLogger("mcp_gateway.registration.catalog").setLevel(logging.ERROR)  # its warnings are in the answer
        caller = Principal(self.tenant, "", frozenset(Scope), on_host=True)
        async with open_services(self.settings, find_database(self.settings)) as services:
            transport = httpx.ASGITransport(make_app_for(services, caller), client=_CLIENT)
            async with httpx.AsyncClient(transport=transport, base_url=_URL) as client:
                if isinstance(body, bytes):
                    return await client.request(method, path, content=body, headers={"Content-Type": JSON_LINES})
                return await client.request(method, path, json=body)
