"""Clients beside OpenAI's own: LangChain, and recorded conversations of Open WebUI."""

import asyncio
import json
from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from starling.core.principal import Scope
from tests.integration.http.conftest import LiveApi
from tests.support.local_access import TOKEN

pytestmark = pytest.mark.asyncio(loop_scope="module")

OPEN_WEBUI = json.loads((Path(__file__).parents[2] / "data" / "openai_clients" / "open_webui.json").read_text())
QUESTION = "How full is this disk?"


def langchain(api: LiveApi, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(base_url=f"{api.url}/v1", api_key=SecretStr(TOKEN), model="starling", max_retries=0, **options)


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("use_responses_api", [False, True])
async def test_langchain_answers_streams_and_goes_on(api: LiveApi, use_responses_api: bool, blocking: bool) -> None:
    model = langchain(api, use_responses_api=use_responses_api, temperature=0)
    messages: list[BaseMessage] = [SystemMessage("Be brief."), HumanMessage("hello")]

    first = await (asyncio.to_thread(model.invoke, messages) if blocking else model.ainvoke(messages))
    messages += [AIMessage(first.text), HumanMessage(QUESTION)]
    if blocking:
        pieces = await asyncio.to_thread(lambda: list(model.stream(messages)))
    else:
        pieces = [piece async for piece in model.astream(messages)]

    assert first.text
    assert "[1]" in "".join(piece.text for piece in pieces)
    [latest, *_] = (await api.get("/v1/threads"))["threads"]
    assert [branch["runs"] for branch in latest["branches"]] == [2]


def with_texts(body: Any, texts: Mapping[str, str]) -> Any:
    """Return a recorded body with the texts of this replay in place of those that were recorded."""
    said = json.dumps(body)
    for recorded, text in texts.items():
        said = said.replace(json.dumps(recorded)[1:-1], json.dumps(text)[1:-1])
    return json.loads(said)


def end_of_stream(stream: str, last_event: str | None) -> tuple[dict[str, Any], str]:
    """Return the last document of a stream that is whole, and its text; those of responses end with an event."""
    lines = [line.removeprefix("data: ") for line in stream.splitlines() if line.startswith("data: ")]
    if last_event:
        last = json.loads(lines[-1])
        assert last["type"] == last_event
        return last["response"], last["response"]["output"][0]["content"][0]["text"]
    assert lines.pop() == "[DONE]"
    chunks = [json.loads(line) for line in lines]
    text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    return next(chunk for chunk in chunks if "starling" in chunk), text


async def replayed(
    api: LiveApi, key: Mapping[str, str], request: Mapping[str, Any], texts: Mapping[str, str]
) -> tuple[str | None, str]:
    """Send a recorded request and compare its answer; return its thread and its text."""
    path, recorded = request["path"], request["answer"]
    body = with_texts(request.get("body"), texts)
    async with api.client.request(
        request["method"], path, json=body, headers={**request["headers"], **key}
    ) as response:
        said = await response.text()
    assert response.status == recorded["status"], said
    if body and body["stream"] and response.ok:
        assert response.content_type == "text/event-stream"
        answer, text = end_of_stream(said, recorded.get("last_event"))
        return answer["starling"]["thread_id"], text
    answer = json.loads(said)
    if "models" in recorded:
        assert answer["data"][0]["id"] == recorded["models"][0]
    assert (answer.get("error") or {}).get("param") == recorded.get("param")
    return answer.get("starling", {}).get("thread_id"), ""


@pytest.mark.parametrize("conversation", OPEN_WEBUI["conversations"], ids=itemgetter("name"))
async def test_recorded_conversation_of_open_webui_has_its_threads_and_branches(
    api: LiveApi, conversation: dict[str, Any]
) -> None:
    key = await api.key(Scope.RUN)
    texts: dict[str, str] = {}
    threads: dict[str, str] = {}

    for request in conversation["requests"]:
        thread, text = await replayed(api, key, request, texts)
        answer = request["answer"]
        if "text" in answer:
            assert text
            texts[answer["text"]] = text
        if "thread" in answer:
            assert thread
            assert threads.setdefault(str(answer["thread"]), thread) == thread

    assert len(set(threads.values())) == len(threads)
    found = {number: await api.get(f"/v1/threads/{thread}") for number, thread in threads.items()}
    runs = {
        number: sorted((branch["runs"] for branch in one["branches"]), reverse=True) for number, one in found.items()
    }
    assert runs == conversation["branches"]
