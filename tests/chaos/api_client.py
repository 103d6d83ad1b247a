"""HTTP client of one tenant: its key, both APIs, the recorded history and a random number generator."""

import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import time
from typing import Any, Self

import aiohttp
from aiohttp import ClientError, ClientResponse, ClientTimeout

from tests.chaos.client_history import ClientHistory
from tests.chaos.cluster import Cluster, TenantKey
from tests.chaos.timing_guarantees import OpenStream

PAUSE_SECONDS = 0.2
LOST = (ClientError, TimeoutError, ConnectionError)
"""Errors of a client when a service or a connection fails."""
_PATIENCE = ClientTimeout(total=None, sock_connect=5, sock_read=20)
_NOT_NOW = {429, 503}
EXPECTED = frozenset({*_NOT_NOW, 404, 409})
NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class ApiClient:
    """Client of one tenant. All its random choices come from its own generator."""

    cluster: Cluster
    history: ClientHistory
    tenant: str
    rng: random.Random
    client: aiohttp.ClientSession

    @classmethod
    @asynccontextmanager
    async def of(
        cls, cluster: Cluster, history: ClientHistory, tenant: str, rng: random.Random
    ) -> AsyncGenerator[Self]:
        """Give the client of a tenant; its connections are closed at the end of the block."""
        async with aiohttp.ClientSession(timeout=_PATIENCE) as client:
            yield cls(cluster, history, tenant, rng, client)

    def address(self, path: str) -> str:
        """Return the URL of a path at a random API."""
        return self.rng.choice(self.cluster.addresses) + path

    async def request(
        self, method: str, path: str, headers: Mapping[str, str] = NOTHING, **what: Any
    ) -> tuple[int, Mapping[str, Any]]:
        """Send a request; return its status and JSON. Status 0: no response, or one that says to retry."""
        key = self.cluster.keys[self.tenant]
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
    async def stream(
        self, method: str, path: str, headers: Mapping[str, str], **what: Any
    ) -> AsyncGenerator[ClientResponse | None]:
        """Open a stream and record its start and end; None: retry it. Raises the errors in `LOST`."""
        key = self.cluster.keys[self.tenant]
        api = self.address("")
        stream = OpenStream(key.id, time(), address=api)
        try:
            async with self.client.request(method, api + path, headers=_shown(key, headers), **what) as response:
                self.history.guarantees.streams.append(stream)
                yield response if self._is_possible(response, key) else None
        finally:
            stream.closed = time()

    def _is_possible(self, response: ClientResponse, key: TenantKey) -> bool:
        """Record a refusal; return whether the response is final, so that a retry would change nothing."""
        if response.status >= 300:
            self.history.count_refusal(response.status)
        if response.status == 401 and key.going:
            return False
        if response.status >= 400 and response.status not in EXPECTED:
            path = response.url.path
            self.history.add_violation(
                "no exception reaches a caller", f"{response.method} {path}: status {response.status}"
            )
        return response.status < 500 and response.status not in _NOT_NOW


def _shown(key: TenantKey, headers: Mapping[str, str]) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {key.secret}", **headers}
