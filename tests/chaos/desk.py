"""What everybody who calls for one tenant shares: its key, both APIs, the books, and dice of its own."""

import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

import aiohttp
from aiohttp import ClientError, ClientResponse, ClientTimeout

from tests.chaos.books import Books
from tests.chaos.town import Town

PAUSE_SECONDS = 0.2
LOST = (ClientError, TimeoutError, ConnectionError)
"""What a caller sees of a service or a connection that went away."""
_PATIENCE = ClientTimeout(total=None, sock_connect=5, sock_read=20)
_NOT_NOW = {429, 503}
EXPECTED = frozenset({*_NOT_NOW, 404, 409})


@dataclass(frozen=True, slots=True)
class Desk:
    """One tenant's. Every choice is by dice that tenants don't share."""

    town: Town
    books: Books
    tenant: str
    dice: random.Random
    client: aiohttp.ClientSession

    @classmethod
    @asynccontextmanager
    async def of(cls, town: Town, books: Books, tenant: str, dice: random.Random) -> AsyncGenerator[Self]:
        """Give the desk of a tenant, whose connections end with the block."""
        headers = {"Authorization": f"Bearer {town.keys[tenant]}"}
        async with aiohttp.ClientSession(headers=headers, timeout=_PATIENCE) as client:
            yield cls(town, books, tenant, dice, client)

    def address(self, path: str) -> str:
        """Return a path at one API or the other."""
        return self.dice.choice(self.town.addresses) + path

    async def asked(self, method: str, path: str, **what: Any) -> tuple[int, Mapping[str, Any]]:
        """Make a request; return its status and its JSON. Status 0: it was lost, or isn't possible now."""
        try:
            async with self.client.request(method, self.address(path), **what) as response:
                if not self.is_possible(response):
                    return 0, {}
                return response.status, await response.json()
        except LOST:
            return 0, {}

    def is_possible(self, response: ClientResponse) -> bool:
        """Enter what was refused; return whether it makes no sense to try the same again."""
        if response.status >= 300:
            self.books.refuse(response.status)
        if response.status >= 400 and response.status not in EXPECTED:
            path = response.url.path
            self.books.wrong("no exception reaches a caller", f"{response.method} {path}: status {response.status}")
        return response.status < 500 and response.status not in _NOT_NOW
