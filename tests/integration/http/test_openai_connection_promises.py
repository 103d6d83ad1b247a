"""What is promised to programs that wait in OpenAI's client: errors, cancellation, connections that break."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import httpx
import openai
import pytest
import pytest_asyncio

from starling.core.ids import new_id
from tests.support.chat_platform import ChatPlatform, chat_platform
from tests.support.openai_clients import blocking_openai_client
from tests.support.platform import decision
from tests.support.tcp_proxy import Moment, TcpProxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
DOORS: Final[Mapping[str, dict[str, Any]]] = {
    CHAT: {"messages": [{"role": "user", "content": "hello"}]},
    RESPONSES: {"input": "hello"},
}
FUNCTION: Final[dict[str, Any]] = {"type": "function", "function": {"name": "f", "parameters": {}}}
HEADERS, HALF_BODY, FIRST_EVENT = b"\r\n\r\n", b'"object":', b"\n\n"
BEFORE_DONE, DONE = b'"finish_reason":"stop"', b"data: [DONE]\n\n"
BEFORE_COMPLETED, ALL_EVENTS = b"event: response.output_text.done", b"\r\n0\r\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ChatPlatform]:
    async with chat_platform(module_database_url, tmp_path_factory.mktemp("platform")) as platform:
        yield platform


@pytest.fixture
def platform(opened: ChatPlatform) -> ChatPlatform:
    opened.script.forget()
    opened.model.forget()
    opened.script.supervisor(decision(reply="Hello."))
    return opened


@pytest.fixture(scope="module")
def threads() -> Generator[ThreadPoolExecutor]:
    """Threads for clients that block, which take none of the platform's."""
    with ThreadPoolExecutor(16) as threads:
        yield threads


@dataclass(frozen=True, slots=True)
class Program:
    """A program with a blocking client, behind a proxy that breaks its connections."""

    proxy: TcpProxy
    client: openai.OpenAI
    threads: ThreadPoolExecutor

    async def call[Result](self, use: Callable[[openai.OpenAI], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self.threads, use, self.client)

    async def ask(self, path: str, *, streamed: bool, **more: Any) -> "Asked":
        return await self.call(lambda client: _ask(client, path, streamed=streamed, **more))


@dataclass(frozen=True, slots=True)
class Asked:
    """What a client got: its run, the text, how often it sent the request again, and whether its stream broke."""

    run_id: str
    text: str
    repeated: tuple[int, str]
    is_broken: bool = False


def _ask(client: openai.OpenAI, path: str, *, streamed: bool, leave: bool = False, **more: Any) -> Asked:
    """Ask, and read the answer to its end; with `leave` close the stream after its first event."""
    door: Any = client.chat.completions if path == CHAT else client.responses
    raw = door.with_raw_response.create(**{"model": "starling", "stream": streamed, **DOORS[path], **more})
    run_id, repeated = raw.headers["x-run-id"], (raw.retries_taken, raw.http_request.headers["x-stainless-retry-count"])
    told, texts = raw.parse(), list[str]()
    if not streamed:
        return Asked(run_id, told.choices[0].message.content if path == CHAT else told.output_text, repeated)
    try:
        for part in told:
            if leave:
                told.close()
                return Asked(run_id, "", repeated)
            if path == CHAT:
                texts += [choice.delta.content or "" for choice in part.choices]
            elif part.type == "response.output_text.delta":
                texts.append(part.delta)
    except httpx.RemoteProtocolError:
        return Asked(run_id, "".join(texts), repeated, is_broken=True)
    return Asked(run_id, "".join(texts), repeated)


@asynccontextmanager
async def program(platform: ChatPlatform, threads: ThreadPoolExecutor, key: str = "") -> AsyncGenerator[Program]:
    """Give a program, with a key of its own if none is given; its client repeats requests twice, OpenAI's default."""
    proxy = TcpProxy(platform.port)
    await proxy.start()
    try:
        url, key = f"http://127.0.0.1:{proxy.port}", key or await platform.key()
        with blocking_openai_client(url, key, max_retries=2) as client:
            yield Program(proxy, client, threads)
    finally:
        await proxy.stop()


# Errors and cancellation


@pytest.mark.parametrize(
    ("key", "more", "error", "param_and_code"),
    [
        ("sk-nobodys", {}, openai.AuthenticationError, (None, "invalid_api_key")),
        ("", {"model": "gpt-4o"}, openai.NotFoundError, ("model", "model_not_found")),
        ("", {"tools": [FUNCTION]}, openai.BadRequestError, ("tools", "invalid_request")),
        ("", {"metadata": {"thread_id": "a/.."}}, openai.BadRequestError, ("metadata.thread_id", "invalid_request")),
    ],
)
async def test_request_that_is_refused_raises_the_clients_own_error_and_is_sent_once(
    platform: ChatPlatform,
    threads: ThreadPoolExecutor,
    key: str,
    more: dict[str, Any],
    error: type[openai.APIStatusError],
    param_and_code: tuple[str | None, str],
) -> None:
    earlier = await platform.run_ids()

    async with program(platform, threads, key) as one:
        for path, streamed in product(DOORS, (False, True)):
            with pytest.raises(error) as refused:
                await one.ask(path, streamed=streamed, **more)

            assert (refused.value.param, refused.value.code) == param_and_code
            assert refused.value.request.headers["x-stainless-retry-count"] == "0"
    assert await platform.run_ids() == earlier


async def test_response_is_cancelled_in_the_background_and_while_another_program_waits_for_it(
    platform: ChatPlatform, threads: ThreadPoolExecutor
) -> None:
    platform.script.held = True

    async with asyncio.timeout(60), program(platform, threads) as one, program(platform, threads) as other:
        begun = await one.call(lambda client: client.responses.create(model="starling", input="hi", background=True))
        stream = await one.call(lambda client: client.responses.create(model="starling", input="hi", stream=True))
        created = await one.call(lambda _: next(stream))
        await platform.model.received(2)
        assert created.type == "response.created"
        ids = begun.id, created.response.id

        cancelled = [await other.call(lambda client, id_=id_: client.responses.cancel(id_)) for id_ in ids]

        last = (await one.call(lambda _: list(stream)))[-1]
        shown = [await one.call(lambda client, id_=id_: client.responses.retrieve(id_)) for id_ in ids]
    assert last.type == "response.failed"
    assert {response.status for response in (*cancelled, *shown, last.response)} == {"cancelled"}
    assert [(await platform.get(f"/v1/runs/{id_.removeprefix('resp_')}"))["status"] for id_ in ids] == ["cancelled"] * 2


# Connections that break


@pytest.mark.parametrize("path", DOORS)
async def test_request_whose_answer_is_lost_is_sent_again_and_joins_the_run_that_it_began(
    platform: ChatPlatform, threads: ThreadPoolExecutor, path: str
) -> None:
    async def lost(streamed: bool, at: Moment | bytes) -> tuple[Asked, int]:
        async with program(platform, threads) as one:
            if isinstance(at, bytes):
                one.proxy.cut_answer(at)
            else:
                one.proxy.cut(at, b'"hello"')
            return await one.ask(path, streamed=streamed), one.proxy.cuts

    moments: tuple[Moment, ...] = ("before", "during", "after")
    cases = [*product((False, True), moments), (False, HEADERS), (False, HALF_BODY)]
    earlier = set(await platform.run_ids())

    found = await asyncio.gather(*(lost(*case) for case in cases))

    begun = set(await platform.run_ids()) - earlier
    assert [(asked.text, asked.repeated, cuts) for asked, cuts in found] == [("Hello.", (1, "1"), 1)] * len(cases)
    assert {asked.run_id for asked, _ in found} == begun
    assert len(begun) == len(cases)


async def test_run_of_a_stream_that_ends_early_is_cancelled_unless_its_request_comes_again(
    platform: ChatPlatform, threads: ThreadPoolExecutor
) -> None:
    platform.script.held = True

    async def ended_early(path: str, at: bytes | None, *, returns: bool) -> tuple[Asked, Asked | None, str]:
        key = {"Idempotency-Key": new_id()} if returns else {}
        async with program(platform, threads) as one:
            if at:
                one.proxy.cut_answer(at)
            first = await one.ask(path, streamed=True, leave=at is None, extra_headers=key)
            again = one.ask(path, streamed=True, extra_headers=key) if returns else None
            return first, again and await again, (await platform.ended(first.run_id))["status"]

    async def all_of(*, returns: bool) -> list[tuple[Asked, Asked | None, str]]:
        ways = product(DOORS, (HEADERS, FIRST_EVENT, None))
        return await asyncio.gather(*(ended_early(path, at, returns=returns) for path, at in ways))

    earlier = set(await platform.run_ids())
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        left, kept = group.create_task(all_of(returns=False)), group.create_task(all_of(returns=True))
        await platform.model.received(12)
        await asyncio.wait({left})
        for number in range(1, 13):
            platform.model.release(str(number))

    assert [(first.text, first.repeated, status) for first, _, status in left.result()] == [
        ("", (0, "0"), "cancelled")
    ] * 6
    assert [(again and again.text, status) for _, again, status in kept.result()] == [("Hello.", "succeeded")] * 6
    assert all(again and again.run_id == first.run_id for first, again, _ in kept.result())
    assert len(set(await platform.run_ids()) - earlier) == 12


@pytest.mark.parametrize(
    ("path", "at", "is_broken"),
    [
        (CHAT, BEFORE_DONE, True),
        (CHAT, DONE, False),  # the client reads no further
        (RESPONSES, BEFORE_COMPLETED, True),
        (RESPONSES, ALL_EVENTS, True),
    ],
)
async def test_stream_that_breaks_once_its_text_is_out_is_the_same_when_its_request_comes_again(
    platform: ChatPlatform, threads: ThreadPoolExecutor, path: str, at: bytes, is_broken: bool
) -> None:
    key, earlier = {"Idempotency-Key": new_id()}, set(await platform.run_ids())
    async with program(platform, threads) as one:
        one.proxy.cut_answer(at)

        first, again = [await one.ask(path, streamed=True, extra_headers=key) for _ in range(2)]

        cuts = one.proxy.cuts
    assert (first.text, first.is_broken, cuts) == ("Hello.", is_broken, 1)
    assert (again.run_id, again.text, again.is_broken) == (first.run_id, "Hello.", False)
    assert set(await platform.run_ids()) - earlier == {first.run_id}
    assert (await platform.ended(first.run_id))["status"] == "succeeded"
