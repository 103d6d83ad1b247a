"""OpenAI's responses API by OpenAI's own client."""

import asyncio

import openai
import pytest
from openai.types.responses import Response

from tests.integration.http.conftest import LiveApi
from tests.support.openai_clients import blocking_openai_client, openai_client

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUESTION = "How full is this disk?"


async def ended(client: openai.AsyncOpenAI, response: Response) -> Response:
    """Return a response that was begun in the background, once it has ended."""
    while response.status in ("queued", "in_progress"):
        await asyncio.sleep(0.02)
        response = await client.responses.retrieve(response.id)
    return response


async def test_response_is_the_answer_of_a_run_and_can_be_retrieved(api: LiveApi) -> None:
    async with openai_client(api.url) as client:
        created = await client.responses.create(
            model="starling", input=QUESTION, instructions="Be brief.", metadata={"a": "b"}
        )
        found = await client.responses.retrieve(created.id)

    assert created.status == found.status == "completed"
    assert "[1]" in created.output_text
    assert found.output_text == created.output_text
    assert found.usage == created.usage
    assert found.model == "starling"
    assert found.instructions == "Be brief."
    assert created.metadata == {"a": "b"}


async def test_synchronous_client_gets_the_same(api: LiveApi) -> None:
    def ask() -> tuple[str, str]:
        with blocking_openai_client(api.url) as client:
            whole = client.responses.create(model="starling", input="hello")
            stream = client.responses.create(model="starling", input="hello", stream=True)
            texts = [event.delta for event in stream if event.type == "response.output_text.delta"]
            return whole.output_text, "".join(texts)

    whole, streamed = await asyncio.to_thread(ask)

    assert whole == streamed != ""


async def test_background_response_is_polled_until_it_ends(api: LiveApi) -> None:
    async with openai_client(api.url) as client:
        begun = await client.responses.create(model="starling", input=QUESTION, background=True)
        found = await ended(client, begun)

    assert begun.status in ("queued", "in_progress")
    assert found.status == "completed"
    assert found.output_text


async def test_previous_response_continues_its_branch_or_forks_it(api: LiveApi) -> None:
    async with openai_client(api.url) as client:
        first = await client.responses.create(model="starling", input="hello")
        second = await client.responses.create(model="starling", input=QUESTION, previous_response_id=first.id)
        again = await client.responses.create(model="starling", input="thanks", previous_response_id=first.id)

    threads = {(it.model_extra or {})["starling"]["thread_id"] for it in (first, second, again)}
    assert len(threads) == 1
    assert second.previous_response_id == first.id
    found = await api.get(f"/v1/threads/{threads.pop()}")
    main, fork = found["branches"]
    assert main["runs"] == 2
    assert (fork["parent"], fork["runs"]) == ("main", 1)


async def test_stream_of_an_earlier_response_is_refused_by_name(api: LiveApi) -> None:
    async with openai_client(api.url) as client:
        created = await client.responses.create(model="starling", input="hello")
        with pytest.raises(openai.BadRequestError) as refused:
            await client.responses.retrieve(created.id, stream=True)
        found = await client.responses.retrieve(created.id, stream=False)

    assert refused.value.param == "stream"
    assert found.output_text == created.output_text
