"""The platform is killed while a chat waits for its answer: the repeated request finds the run, and what it began."""

import asyncio
import json
import re
import signal
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
from openai.types.chat import ChatCompletion

from tests.e2e.test_effects_after_kill import environment, script
from tests.support.chat_platform import ChatDialogue, extension_of, text_of
from tests.support.command_line import CliWorkspace, Service, new_workspace
from tests.support.effect_recorder import EffectRecorder
from tests.support.gateway_harness import free_port
from tests.support.http_client import ApiClient
from tests.support.local_access import admin_headers
from tests.support.model_server import ModelServer
from tests.support.openai_clients import openai_client
from tests.support.platform_process import PlatformProcess

MESSAGES: list[Any] = [{"role": "user", "content": "Do it."}]
STALLED = {"stall": "before", "gate": "gate"}


def client_of(platform: PlatformProcess) -> openai.AsyncOpenAI:
    key = admin_headers(platform.folder / "data")["Authorization"].removeprefix("Bearer ")
    return openai_client(platform.address, key)


async def until_answered(platform: PlatformProcess) -> None:
    """Return once the ledger of the only run has an answer to a call: what is not in it may be done again."""
    async with platform.client() as client:
        api = ApiClient("", client)
        [run] = (await api.get("/v1/runs"))["runs"]
        calls: list[dict[str, Any]] = []
        while "succeeded" not in [call["state"] for call in calls]:
            calls = (await api.get(f"/v1/runs/{run['run_id']}/calls"))["calls"]
            await asyncio.sleep(0.05)


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
            await effects.until("arrived", "unsent")
            await until_answered(platform)
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


@contextmanager
def workspace_of(effects: EffectRecorder, database_url: str, model: ModelServer) -> Generator[CliWorkspace]:
    """Give a workspace for services that have the recorder as their only server."""
    config = effects.file.with_name("mcp.json")
    config.write_text(json.dumps({"mcpServers": {"effects": effects.as_server()}}))
    with new_workspace(DATABASE_URL=database_url, STARLING_MCP_CONFIG=str(config), **environment(model)) as workspace:
        yield workspace


async def killed_in_a_call(
    workspace: CliWorkspace, command: Sequence[str], effects: EffectRecorder, at: str
) -> tuple[openai.AsyncOpenAI, asyncio.Task[ChatCompletion]]:
    """Chat with a service, and kill it when the call has `arrived` or is `done`; give the client, which repeats."""
    with workspace.started(*command) as process:
        service = await asyncio.to_thread(Service.ready, process)
        key = workspace.admin_headers["Authorization"].removeprefix("Bearer ")
        client = openai_client(service.url, key, max_retries=20)
        asking = asyncio.create_task(client.chat.completions.create(model="starling", messages=MESSAGES))
        await effects.until(at, "a")
        _, left = await asyncio.to_thread(service.stopped_by, signal.SIGKILL)
    assert left == []
    effects.open("gate")
    return client, asking


async def test_client_repeats_its_request_and_gets_the_answer_of_the_run_that_the_worker_went_on_with(
    database_url: str, open_folder: Path
) -> None:
    effects, serve = EffectRecorder(open_folder / "effects"), ("serve", "--port", str(free_port()), "--json")
    async with ModelServer(script({"t1": [("charge", {"what": "a", **STALLED})]})) as model:
        with workspace_of(effects, database_url, model) as workspace, workspace.running("worker"):
            client, asking = await killed_in_a_call(workspace, serve, effects, "arrived")
            await effects.until("done", "a")
            assert not asking.done()
            with workspace.started(*serve) as process:
                await asyncio.to_thread(Service.ready, process)
                async with client:
                    answer = await asking
            runs = workspace.json("run", "list")

    assert text_of(answer) == "This is what came of it. [1]"
    assert [run["id"] for run in runs] == [extension_of(answer)["run_id"]]
    assert [(line["what"], line["fence"]) for line in effects.lines("arrived")] == [("a", 1)]


async def test_client_repeats_its_request_and_is_asked_whether_an_unsafe_call_was_made(
    database_url: str, open_folder: Path
) -> None:
    effects, up = EffectRecorder(open_folder / "effects"), ("up", "--port", str(free_port()), "--json")
    async with ModelServer(script({"t1": [("charge", {"what": "a", **STALLED, "stall": "after"})]})) as model:
        with workspace_of(effects, database_url, model) as workspace:
            client, asking = await killed_in_a_call(workspace, up, effects, "done")
            with workspace.started(*up) as process:
                await asyncio.to_thread(Service.ready, process)
                async with client:
                    asked = await asking
                    code = re.search("`(done [0-9A-F]+)`", text_of(asked))
                    assert code, text_of(asked)
                    messages = [*MESSAGES, {"role": "assistant", "content": text_of(asked)}]
                    decided = await ChatDialogue(client, messages).say(code[1])
            runs = workspace.json("run", "list")

    assert [extension_of(answer)["status"] for answer in (asked, decided)] == ["waiting", "succeeded"]
    assert [run["id"] for run in runs] == [extension_of(decided)["run_id"]] == [extension_of(asked)["run_id"]]
    assert [line["what"] for line in effects.lines("arrived")] == ["a"]
