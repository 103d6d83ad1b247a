"""A real `starling up` whose tools are called one by one over HTTP, without a model."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.http_client import ApiClient
from tests.support.platform_process import PlatformProcess

type Body = dict[str, Any]
type Headers = Mapping[str, str]

_REASON = "It is being tested."


@dataclass(frozen=True, slots=True)
class SingleCalls(ApiClient):
    """A platform, and a client that is an admin of its machine unless other headers are given."""

    platform: PlatformProcess

    async def key(self, *scopes: str, tenant: str = "default", grant: Body | None = None) -> Headers:
        """Return the header that shows a new key."""
        return (await self.new_key(*scopes, tenant=tenant, grant=grant))[1]

    async def new_key(
        self, *scopes: str, tenant: str = "default", grant: Body | None = None
    ) -> tuple[str, dict[str, str]]:
        """Return the id of a new key, and the header that shows it."""
        body = {"name": "test", "tenant": tenant, "scopes": scopes} | ({"grant": grant} if grant else {})
        made = await self.post("/v1/keys", 201, json=body)
        return made["id"], {"Authorization": f"Bearer {made['key']}"}

    async def call(
        self, tool: str, /, *, by: Headers | None = None, once: str = "", seconds: float | None = None, **arguments: Any
    ) -> Body:
        """Call a tool; `once` is the idempotency key, `seconds` how long the answer may take."""
        return await self.send("POST", "/execute", **_request(tool, arguments, by, once, seconds))

    async def refused(
        self, status: int, tool: str, /, *, by: Headers | None = None, once: str = "", **arguments: Any
    ) -> Body:
        """Call a tool; the answer has to be a problem of this status."""
        return await self.send("POST", "/execute", status, **_request(tool, arguments, by, once, None))

    async def tools(self, by: Headers | None = None) -> dict[str, Body]:
        """Return the tools on offer by their names, which have to differ."""
        listed = (await self.get("/tools", headers=by or {}))["tools"]
        found = {tool["name"]: tool for tool in listed}
        assert len(found) == len(listed)
        return found

    async def ended(self, tool: str, once: str, **request: Any) -> Body:
        """Repeat a call until it waits no more."""
        async with asyncio.timeout(60):
            said = await self.call(tool, once=once, seconds=60, **request)
            while said["status"] == "waiting":
                await asyncio.sleep(0.05)  # its approval may have to reach a worker
                said = await self.call(tool, once=once, seconds=60, **request)
        return said

    async def run_ended(self, run_id: str) -> Body:
        """Return a run once it has ended."""
        async with asyncio.timeout(60), self.client.get(f"/v1/runs/{run_id}/events") as stream:
            await stream.read()
        return await self.get(f"/v1/runs/{run_id}")

    async def waits_for(self, run_id: str, **by: Any) -> Body:
        """Return what a run waits for, once it does."""
        async with asyncio.timeout(60):
            while True:
                if found := (await self.get("/v1/approvals", params={"run_id": run_id}, **by))["interrupts"]:
                    return found[0]
                await asyncio.sleep(0.05)

    async def answer(self, run_id: str, status: int = 202, **payload: Any) -> Body:
        """Answer what a run waits for."""
        asked = await self.waits_for(run_id)
        body = {"status": "resolved", "payload": payload}
        return await self.post(f"/v1/approvals/{asked['id']}", status, json=body)

    @asynccontextmanager
    async def switched_off(self, kind: str, name: str, tool: str = "effects.read_it") -> AsyncGenerator[None]:
        """Switch something off until the block ends, of which `tool` is a part; it is called with wrong arguments."""
        await self.put("/v1/switches", json={"kind": kind, "name": name, "reason": _REASON})
        await self._until(tool, off=True)
        try:
            yield
        finally:
            await self.delete("/v1/switches", 204, params={"kind": kind, "name": name})
            await self._until(tool, off=False)

    async def _until(self, tool: str, *, off: bool) -> None:
        async with asyncio.timeout(60):
            while off != (_REASON in str(await self.call(tool, unknown="argument"))):  # noqa: ASYNC110
                await asyncio.sleep(0.02)


def _request(tool: str, arguments: Body, by: Headers | None, once: str, seconds: float | None) -> Body:
    headers = dict(by or {}) | ({"Idempotency-Key": once} if once else {})
    body: Body = {"tool_name": tool, "arguments": arguments} | ({} if seconds is None else {"timeout": seconds})
    return {"json": body, "headers": headers}


@asynccontextmanager
async def single_calls(
    folder: Path, servers: Mapping[str, Any], database_url: str, **environment: str
) -> AsyncGenerator[SingleCalls]:
    """Run a platform with these servers until the block ends."""
    known = {"DATABASE_URL": database_url, "STARLING_MODEL": "offline:rules", "STARLING_RATE_PER_MINUTE": "100000"}
    async with (
        PlatformProcess.running(folder, servers, known | environment) as platform,
        platform.client() as client,
    ):
        yield SingleCalls(platform.address, client, platform)
