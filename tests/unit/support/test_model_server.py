"""The scripted model server as a process of its own, as end-to-end tests use it."""

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from starling.core.llm import Message, ModelRequest, ModelRole
from starling.infra.llm.chat_model import Endpoint
from starling.infra.llm.openai_endpoint import EndpointModel, open_session

ASKED = ModelRequest(ModelRole.ROUTER, (Message("system", "Be brief."), Message("user", "Say hello.")), timeout=20)


@asynccontextmanager
async def model_server(*options: str) -> AsyncGenerator[str]:
    """Run the server and give its URL."""
    command = (sys.executable, "-m", "tests.support.model_server", *options)
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_a_script_answers_and_what_was_asked_can_be_read(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    rules = [
        {"when": {"last_contains": "hello", "nth": 2}, "answer": {"content": "Hello again."}},
        {"when": {"contains": "brief"}, "answer": {"content": "Hello."}},
    ]
    script.write_text(json.dumps(rules))

    async with model_server("--script", str(script)) as url, open_session(trust_env=False) as session:
        model = EndpointModel("local:small", "small", Endpoint(url), session)
        replies = [(await model.respond(ASKED)).content for _ in range(3)]
        asked = await _asked(session, url)

    assert replies == ["Hello.", "Hello again.", "Hello."]
    assert [request["body"]["model"] for request in asked] == ["small"] * 3


async def test_the_rules_answer_anything() -> None:
    async with model_server("--rules", "--latency-ms", "1") as url, open_session(trust_env=False) as session:
        reply = await EndpointModel("local:small", "small", Endpoint(url), session).respond(ASKED)

    assert reply.finish_reason == "stop"


async def _asked(session: aiohttp.ClientSession, url: str) -> list[dict[str, dict[str, str]]]:
    async with session.get(f"{url.removesuffix('/v1')}/requests") as response:
        return await response.json()
