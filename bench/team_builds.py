"""How long a team takes from a wish to its activation, without a model: designed, proved and published."""

import sys
from statistics import median
from time import perf_counter
from typing import Any, Final

import aiohttp
import orjson

from bench.figures import Figure
from bench.harness import BenchSetup
from bench.platform_process import admin_session, up

NAMES: Final = ("architect.build_ms",)
GOAL: Final = "A team that watches the disk and the memory of this machine."
REQUEST: Final = "How full is the disk?"
_SHOWN: Final = {"id": "shown", "kind": "text_contains", "text": "It has figures.", "value": "bytes"}
CASES: Final = [{"input": text, "criteria": [_SHOWN]} for text in (REQUEST, "How much memory is free?")]
_BUILDS: Final = 11
_SERVER: Final = {
    "command": sys.executable,
    "args": ["-m", "mcp_gateway.servers.system_health"],
    "x-starling": {"effect": "read"},
}


async def measure(setup: BenchSetup) -> list[Figure]:
    """Build teams one after another, each followed by a request that calls one of the same tools."""
    setup.say(f"{_BUILDS} teams, built by rules")
    place = setup.place("builds", STARLING_MODEL="offline:rules")
    (place.folder / "mcp.json").write_bytes(orjson.dumps({"mcpServers": {"system_health": _SERVER}}))
    builds, requests = list[float](), list[float]()
    async with up(place) as (platform, _), admin_session(platform, place) as api:
        await _finished(api, "/v1/runs", {"input": REQUEST, "thread_id": "warm"})  # the server starts with it
        for number in range(_BUILDS):
            name = f"watchers_{number}"
            builds.append(await _finished(api, "/v1/teams", {"goal": GOAL, "name": name, "cases": CASES}))
            await _post(api, f"/v1/teams/{name}/archive", {})
            requests.append(await _finished(api, "/v1/runs", {"input": REQUEST, "thread_id": name}))
    return [Figure("architect.build_ms", median(builds), "ms", median(requests), "a request that calls one tool")]


async def _finished(api: aiohttp.ClientSession, path: str, body: dict[str, Any]) -> float:
    """Return the milliseconds from sending a request to the last event of its run. Raises RuntimeError."""
    begun, last = perf_counter(), b""
    accepted = await _post(api, path, body)
    async with api.get(f"/v1/runs/{accepted['run_id']}/events") as response:
        async for line in response.content:
            last = line[6:] if line.startswith(b"data: ") else last
    if orjson.loads(last).get("status") != "succeeded":
        raise RuntimeError(f"the run of {path} didn't succeed: {last.decode()}")
    return (perf_counter() - begun) * 1000


async def _post(api: aiohttp.ClientSession, path: str, body: dict[str, Any]) -> dict[str, Any]:
    async with api.post(path, json=body) as response:
        if response.status >= 300:
            raise RuntimeError(f"{path} was refused: {await response.text()}")
        return await response.json()
