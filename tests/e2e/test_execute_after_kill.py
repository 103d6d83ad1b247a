"""The platform is killed during single tool calls: the repeated request finds what the ledger says of the call."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.effect_recorder import EffectRecorder
from tests.support.platform_process import PlatformProcess

NO_MODEL = {
    "STARLING_MODEL": "nobody:model",
    "STARLING_PROVIDERS": json.dumps({"nobody": {"base_url": "http://127.0.0.1:9"}}),
    "STARLING_LIMITS": json.dumps({"lease_seconds": 2}),
}


async def execute(platform: PlatformProcess, tool: str) -> dict[str, Any]:
    arguments = {"what": tool, "stall": "after", "gate": "gate"}
    async with platform.client() as client:
        body = {"tool_name": f"effects.{tool}", "arguments": arguments}
        async with client.post("/execute", json=body, headers={"Idempotency-Key": tool}) as response:
            return await response.json()


async def test_repeated_requests_find_the_calls_that_were_cut_off(open_folder: Path) -> None:
    effects = EffectRecorder(open_folder / "effects.jsonl")
    async with PlatformProcess.running(open_folder, {"effects": effects.as_server()}, NO_MODEL) as platform:
        cut_off = [asyncio.create_task(execute(platform, tool)) for tool in ("charge", "pay")]
        for tool in ("charge", "pay"):
            await effects.until("done", tool)
        assert await platform.kill() == []
        for request in cut_off:
            with pytest.raises(aiohttp.ClientError):
                await request
        effects.open("gate")
        await platform.start()

        again = [await execute(platform, tool) for tool in ("charge", "pay")]

    assert [said["status"] for said in again] == ["in_doubt", "success"]
    assert sorted(effects.done()) == ["charge charge", "pay pay"]
