"""The platform is killed while a chat waits for its answer: the repeated request finds the run, and what it began."""

import asyncio
from pathlib import Path
from typing import Any

import openai

from tests.e2e.test_effects_after_kill import environment, script
from tests.support.effect_recorder import EffectRecorder
from tests.support.local_access import admin_headers
from tests.support.model_server import ModelServer
from tests.support.openai_clients import openai_client
from tests.support.platform_process import PlatformProcess

MESSAGES: list[Any] = [{"role": "user", "content": "Do it."}]
STALLED = {"stall": "before", "gate": "gate"}


def client_of(platform: PlatformProcess) -> openai.AsyncOpenAI:
    key = admin_headers(platform.folder / "data")["Authorization"].removeprefix("Bearer ")
    return openai_client(platform.address, key)


async def test_repeated_request_after_a_kill_joins_the_run_and_nothing_is_done_twice(open_folder: Path) -> None:
    effects = EffectRecorder(open_folder / "effects")
    made = ("put", {"what": "a"}), ("put", {"what": "unsent", **STALLED})
    async with (
        ModelServer(script({"t1": made})) as model,
        PlatformProcess.running(open_folder, {"effects": effects.as_server()}, environment(model)) as platform,
    ):
        async with client_of(platform) as client:
            asking = asyncio.get_running_loop().create_task(
                client.chat.completions.create(model="starling", messages=MESSAGES)
            )
            await effects.until("done", "a")
            await effects.until("arrived", "unsent")
            assert await platform.kill() == []
            [lost] = await asyncio.gather(asking, return_exceptions=True)
            assert isinstance(lost, openai.APIConnectionError)
        effects.open("gate")
        await platform.start()

        async with client_of(platform) as client:
            answer = await client.chat.completions.create(
                model="starling", messages=MESSAGES, extra_headers={"x-stainless-retry-count": "1"}
            )
        async with platform.client() as api, api.get("/v1/runs") as response:
            runs = (await response.json())["runs"]

    assert answer.choices[0].message.content == "This is what came of it. [1]"
    assert [run["run_id"] for run in runs] == [(answer.model_extra or {})["starling"]["run_id"]]
    assert effects.done().count("put a") == 1
    assert effects.done().count("put unsent") == 1
