"""OpenAI's responses API by OpenAI's own client."""

import asyncio

import openai
import pytest
from openai.types.responses import Response, ResponseCompletedEvent

from starling.core.ids import new_id
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


async def test_stream_has_semantic_events_in_order(api: LiveApi) -> None:
    async with openai_client(api.url) as client:
        stream = await client.responses.create(
            model="starling",
            input=[
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": [{"type": "input_text", "text": QUESTION}]},
            ],
            stream=True,
        )
        events = [event async for event in stream]

    assert [event.type for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(9))
    last = events[-1]
    assert isinstance(last, ResponseCompletedEvent)
    assert "[1]" in last.response.output_text


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


async def test_cancelled_response_says_so(api: LiveApi) -> None:
    async with openai_client(api.url) as client:
        begun = await client.responses.create(model="starling", input=QUESTION, background=True)
        cancelled = await client.responses.cancel(begun.id)
        found = await client.responses.retrieve(begun.id)

    assert cancelled.status == found.status
    assert found.status in ("cancelled", "completed")


async def test_unknown_responses_and_models_are_errors(api: LiveApi) -> None:
    nobodys = f"resp_{new_id().replace('-', '')}"
    async with openai_client(api.url) as client:
        with pytest.raises(openai.NotFoundError, match=f"There is no response '{nobodys}'"):
            await client.responses.retrieve(nobodys)
        with pytest.raises(openai.NotFoundError, match=f"There is no response '{nobodys}'"):
            await client.responses.cancel(nobodys)
        with pytest.raises(openai.NotFoundError, match="There is no response 'resp_x'"):
            await client.responses.cancel("resp_x")
        with pytest.raises(openai.BadRequestError) as previous:
            await client.responses.create(model="starling", input="hello", previous_response_id=nobodys)
        with pytest.raises(openai.NotFoundError) as model:
            await client.responses.create(model="gpt-5", input="hello")
        with pytest.raises(openai.BadRequestError) as image:
            await client.responses.create(
                model="starling",
                input=[{"role": "user", "content": [{"type": "input_image", "detail": "auto", "image_url": "x"}]}],
            )

    assert (previous.value.code, previous.value.param) == ("previous_response_not_found", "previous_response_id")
    assert (model.value.code, model.value.param) == ("model_not_found", "model")
    assert image.value.param == "input[0].content"


async def test_stream_of_an_earlier_response_is_refused_by_name(api: LiveApi) -> None:
    async with openai_client(api.url) as client:
        created = await client.responses.create(model="starling", input="hello")
        with pytest.raises(openai.BadRequestError) as refused:
            await client.responses.retrieve(created.id, stream=True)
        found = await client.responses.retrieve(created.id, stream=False)

    assert refused.value.param == "stream"
    assert found.output_text == created.output_text
