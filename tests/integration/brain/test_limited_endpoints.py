"""Whole runs with endpoints that lack features of the protocol."""

from collections.abc import AsyncGenerator
from dataclasses import replace

import orjson
import pytest

from tests.support.model_script import Answer, Body, Rule, Script, When
from tests.support.model_server import ModelServer
from tests.support.platform import BENCH, Platform, Workbench, calls, decision, task, verdict

CALL = '{"tool_calls": [{"name": "look", "arguments": {"thing": "disk"}}]}'
REFUSED = Answer(status=400, body='{"error": {"message": "response_format and tools are not supported"}}')


class PlainEndpoint:
    """An endpoint that takes no `response_format`, and `tools` only if `tools` is set; it knows prompts alone."""

    def __init__(self, *, tools: bool) -> None:
        self._tools = tools
        self._script = Script(
            Rule(decision(task("t1", BENCH)), When(contains="You supervise agents")),
            Rule(verdict("APPROVED"), When(contains="You review the result")),
            Rule(Answer("The disk is fine [1]."), When(contains="You write the final answer")),
            Rule(calls(("look", {"thing": "disk"})) if tools else Answer(CALL), When(contains='<task id="t1"')),
        )

    async def __call__(self, body: Body) -> Answer:
        if "response_format" in body or ("tools" in body and not self._tools):
            return REFUSED
        answer = await self._script(body)
        if "tool_choice" not in body:
            return answer
        name, arguments = body["tool_choice"]["function"]["name"], orjson.loads(answer.content)
        return replace(answer, content="", tool_calls=[{"name": name, "arguments": arguments}])


@pytest.fixture(params=[True, False], ids=["tools", "words"])
async def model(request: pytest.FixtureRequest) -> AsyncGenerator[ModelServer]:
    async with ModelServer(PlainEndpoint(tools=request.param)) as server:
        yield server


async def test_run_succeeds_without_schema_mode_and_without_tool_calling(
    platform: Platform, workbench: Workbench
) -> None:
    stream = await platform.ask("How is the disk?")

    assert (stream.status, stream.reply) == ("succeeded", "The disk is fine [1].")
    assert workbench.done() == ["look disk"]
    refused = [body for body in platform.model.bodies if "response_format" in body]
    assert stream.done["usage"]["model_calls"] == len(platform.model.bodies)
    assert len(refused) <= 2  # json_schema and json_object, each once
