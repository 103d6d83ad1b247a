"""What everybody who calls for one tenant shares: its key, both APIs, the books, and dice of its own."""

import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import time
from typing import Any, Self

import aiohttp
from aiohttp import ClientError, ClientResponse, ClientTimeout

from tests.chaos.books import Books
from tests.chaos.promises import Stream
from tests.chaos.town import TenantKey, Town

PAUSE_SECONDS = 0.2
LOST = (ClientError, TimeoutError, ConnectionError)
"""What a caller sees of a service or a connection that went away."""
_PATIENCE = ClientTimeout(total=None, sock_connect=5, sock_read=20)
_NOT_NOW = {429, 503}
EXPECTED = frozenset({*_NOT_NOW, 404, 409})
NOTHING: Mapping[str, str] = {}


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
        async with aiohttp.ClientSession(timeout=_PATIENCE) as client:
            yield cls(town, books, tenant, dice, client)

    def address(self, path: str) -> str:
        """Return a path at one API or the other."""
        return self.dice.choice(self.town.addresses) + path

    async def asked(
        self, method: str, path: str, headers: Mapping[str, str] = NOTHING, **what: Any
    ) -> tuple[int, Mapping[str, Any]]:
        """Make a request; return its status and its JSON. Status 0: it was lost, or isn't possible now."""
        key = self.town.keys[self.tenant]
        try:
            async with self.client.request(
                method, self.address(path), headers=_shown(key, headers), **what
            ) as response:
                if not self._is_possible(response, key):
                    return 0, {}
                return response.status, await response.json()
        except LOST:
            return 0, {}

    @asynccontextmanager
    async def streamed(
        self, method: str, path: str, headers: Mapping[str, str], **what: Any
    ) -> AsyncGenerator[ClientResponse | None]:
        """Open a stream, whose beginning and end are entered; None: it isn't possible now. Raises what is `LOST`."""
        key = self.town.keys[self.tenant]
        stream = Stream(key.id, time())
        try:
            async with self.client.request(
                method, self.address(path), headers=_shown(key, headers), **what
            ) as response:
                self.books.promises.streams.append(stream)
                yield response if self._is_possible(response, key) else None
        finally:
            stream.closed = time()

    def _is_possible(self, response: ClientResponse, key: TenantKey) -> bool:
        """Enter what was refused; return whether it makes no sense to try the same again."""
        if response.status >= 300:
            self.books.refuse(response.status)
        if response.status == 401 and key.going:
            return False
        if response.status >= 400 and response.status not in EXPECTED:
            path = response.url.path
            self.books.wrong("no exception reaches a caller", f"{response.method} {path}: status {response.status}")
        return response.status < 500 and response.status not in _NOT_NOW


def _shown(key: TenantKey, headers: Mapping[str, str]) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {key.secret}", **headers}
