"""A killed API process: its runs continue at their worker, its readers at another API."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aiohttp

from tests.support.command_line import CliWorkspace, new_workspace
from tests.support.model_script import Answer
from tests.support.model_server import ModelServer
from tests.support.platform import ScriptedModel, decision, task, verdict
from tests.support.sse import Event, read_events

READERS = 5
TEXT = " ".join(f"word{number}" for number in range(50))


def a_model() -> ModelServer:
    """A model that writes some words, waits for the gate `rest` and writes the others."""
    script = ScriptedModel()
    script.supervisor(decision(task("t1", "generalist")))
    script.agent("t1", Answer(TEXT, hold="rest", hold_after=5))
    script.reviewer(verdict("APPROVED", "fits"))
    return ModelServer(script)


@asynccontextmanager
async def a_home(database_url: str) -> AsyncGenerator[tuple[CliWorkspace, ModelServer]]:
    async with a_model() as model:
        with new_workspace(
            DATABASE_URL=database_url,
            STARLING_MODEL="openai:scripted",
            OPENAI_BASE_URL=model.url,
            OPENAI_API_KEY="none",
        ) as workspace:
            yield workspace, model


async def read(url: str, run_id: str, seen: list[Event], first_words: asyncio.Event | None = None) -> None:
    """Read a run's stream on from what was seen, up to its end or to that of the connection."""
    last = {"Last-Event-ID": str(seen[-1].id)} if seen else {}
    async with (
        aiohttp.ClientSession(url) as client,
        client.get(f"/v1/runs/{run_id}/events", headers=last) as response,
    ):
        with contextlib.suppress(aiohttp.ClientPayloadError, ConnectionError):
            async for event in read_events(response):
                seen.append(event)
                if first_words and event.type == "thinking":
                    first_words.set()


async def begin(url: str) -> str:
    body = {"input": "Write it.", "thread_id": "t"}
    async with aiohttp.ClientSession(url) as client, client.post("/v1/runs", json=body) as response:
        assert response.status == 202, await response.text()
        return (await response.json())["run_id"]


async def test_readers_of_killed_api_continue_at_another_without_a_gap(database_url: str) -> None:
    loop = asyncio.get_running_loop()
    async with a_home(database_url) as (workspace, model):
        with (
            workspace.running("serve", "--port", "0") as doomed,
            workspace.running("serve", "--port", "0") as other,
            workspace.running("worker"),
        ):
            run_id = await begin(doomed.url)
            seen: list[list[Event]] = [[] for _ in range(READERS)]
            begun = [asyncio.Event() for _ in seen]
            readings = [
                loop.create_task(read(doomed.url, run_id, events, words))
                for events, words in zip(seen, begun, strict=True)
            ]
            await asyncio.gather(*(words.wait() for words in begun))

            doomed.process.send_signal(signal.SIGKILL)
            await asyncio.gather(*readings)
            model.release("rest")
            await asyncio.gather(*(read(other.url, run_id, events) for events in seen))
            whole: list[Event] = []
            await read(other.url, run_id, whole)

    assert [event.id for event in whole] == list(range(1, len(whole) + 1))
    assert (whole[-1].type, whole[-1].data["status"], whole[-1].data["reply"]) == ("done", "succeeded", TEXT)
    assert seen == [whole] * READERS
