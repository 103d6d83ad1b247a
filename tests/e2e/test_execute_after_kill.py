"""The platform is killed during single tool calls: the repeated request finds what the ledger says of the call."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.effect_recorder import EffectRecorder
from tests.support.platform_process import PlatformProcess

KEY = {"Idempotency-Key": "order-1"}
NO_MODEL = {
    "STARLING_MODEL": "nobody:model",
    "STARLING_PROVIDERS": json.dumps({"nobody": {"base_url": "http://127.0.0.1:9"}}),
    "STARLING_LIMITS": json.dumps({"lease_seconds": 2}),
}


async def execute(platform: PlatformProcess, tool: str) -> dict[str, Any]:
    arguments = {"what": "a", "stall": "after", "gate": "gate"}
    async with platform.client() as client:
        body = {"tool_name": f"effects.{tool}", "arguments": arguments}
        async with client.post("/execute", json=body, headers=KEY) as response:
            return await response.json()


@pytest.mark.parametrize(("tool", "status"), [("charge", "in_doubt"), ("pay", "success")])
async def test_repeated_request_finds_the_call_that_was_cut_off(open_folder: Path, tool: str, status: str) -> None:
    effects = EffectRecorder(open_folder / "effects.jsonl")
    async with PlatformProcess.running(open_folder, {"effects": effects.as_server()}, NO_MODEL) as platform:
        cut_off = asyncio.create_task(execute(platform, tool))
        await effects.until("done", "a")
        assert await platform.kill() == []
        with pytest.raises(aiohttp.ClientError):
            await cut_off
        effects.open("gate")
        await platform.start()

        again = await execute(platform, tool)

    assert again["status"] == status
    assert effects.done() == [f"{tool} a"]
