"""A client of the API that checks the status of each answer."""

from dataclasses import dataclass
from typing import Any

import aiohttp


@dataclass(frozen=True, slots=True)
class ApiClient:
    """The address of an API, and a session for it."""

    url: str
    client: aiohttp.ClientSession

    async def get(self, path: str, status: int = 200, **request: Any) -> Any:
        return await self.send("GET", path, status, **request)

    async def post(self, path: str, status: int = 200, **request: Any) -> Any:
        return await self.send("POST", path, status, **request)

    async def put(self, path: str, status: int = 200, **request: Any) -> Any:
        return await self.send("PUT", path, status, **request)

    async def delete(self, path: str, status: int = 200, **request: Any) -> Any:
        return await self.send("DELETE", path, status, **request)

    async def send(self, method: str, path: str, status: int = 200, **request: Any) -> Any:
        """Return the JSON of an answer that has to have this status, None where it has no JSON."""
        async with self.client.request(method, path, **request) as response:
            assert response.status == status, await response.text()
            return await response.json() if response.content_type.endswith("json") else None
