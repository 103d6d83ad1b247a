"""What is promised to clients that send all messages each time: threads, branches, repeated requests, clean-up."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import openai
import pytest
import pytest_asyncio
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion
from psycopg import AsyncConnection

from starling.core.ids import new_id
from tests.integration.http.test_pool_exhausted import all_in_use, wait_shortly
from tests.support.chat_platform import ChatPlatform, chat_platform, extension_of, platform_client, text_of
from tests.support.model_script import Answer
from tests.support.platform import decision
from tests.support.tcp_proxy import ProxiedDatabase, proxied

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
REPEATED = {"x-stainless-retry-count": "1"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ChatPlatform]:
    async with chat_platform(module_database_url, tmp_path_factory.mktemp("platform")) as platform:
        yield platform


@pytest.fixture
def platform(opened: ChatPlatform) -> ChatPlatform:
    """The platform of this module, whose model counts its answers."""
    opened.script.forget()
    opened.model.forget()
    counting(opened)
    return opened


@pytest_asyncio.fixture(loop_scope="module")
async def client(platform: ChatPlatform) -> AsyncGenerator[AsyncOpenAI]:
    """A client with a key of its own, so that it has no conversation yet."""
    async with platform_client(platform, await platform.key()) as client:
        yield client


def counting(platform: ChatPlatform) -> None:
    platform.script.supervisor(*(decision(reply=f"Answer {number}.") for number in range(1, 30)))


def talk(*texts: Any) -> list[Any]:
    """Return messages of the user and of the assistant in turn."""
    return [{"role": "assistant" if number % 2 else "user", "content": text} for number, text in enumerate(texts)]


async def ask(client: AsyncOpenAI, *texts: Any, path: Any = CHAT, **more: Any) -> tuple[str, str]:
    """Send a conversation; return the thread and the answer."""
    sent: dict[str, Any] = {"model": "starling", "messages": talk(*texts), **more}
    create: Any = client.responses.create if path == RESPONSES else client.chat.completions.create
    if path == RESPONSES:
        response = await create(input=sent.pop("messages"), **sent)
        return response.model_extra["starling"]["thread_id"], response.output_text
    told: ChatCompletion = await create(**sent)
    return extension_of(told)["thread_id"], text_of(told)


def in_thread(way: str, thread: str) -> dict[str, Any]:
    """Return what names the thread of a request."""
    return {"extra_headers": {"X-Thread-Id": thread}} if way == "header" else {"metadata": {"thread_id": thread}}


async def branches(platform: ChatPlatform, thread: str, **headers: Any) -> list[str]:
    return [branch["id"] for branch in (await platform.get(f"/v1/threads/{thread}", **headers))["branches"]]


async def line(platform: ChatPlatform, thread: str, branch: str = "main", **request: Any) -> list[str]:
    """Return what was said on a branch."""
    query = {"branch": branch, "limit": 200}
    states = (await platform.get(f"/v1/threads/{thread}/states", params=query, **request))["states"]
    said = [state["data"] for state in states if state["t"] in ("UserMessageState", "AssistantMessageState")]
    return [data.get("text") or data.get("content") for data in said]


def last_asked(platform: ChatPlatform) -> str:
    return str(platform.model.bodies[-1]["messages"])


# Prefixes that match


async def test_conversation_goes_on_in_its_thread_and_says_nothing_twice(
    platform: ChatPlatform, client: AsyncOpenAI
) -> None:
    texts: list[str] = []
    threads: set[str] = set()
    for text in ("Ants.", "Bees.", "Cats."):
        thread, answer = await ask(client, *texts, text)
        texts += [text, answer]
        threads.add(thread)

    assert texts[1::2] == ["Answer 1.", "Answer 2.", "Answer 3."]
    assert len(threads) == 1
    assert await branches(platform, thread) == ["main"]
    assert await line(platform, thread) == texts
    assert [last_asked(platform).count(text) for text in ("Ants.", "Bees.")] == [1, 1]


@pytest.mark.parametrize("third", ["Bees.", "Cows."])
async def test_turn_that_is_regenerated_or_edited_becomes_a_branch_and_both_go_on(
    platform: ChatPlatform, client: AsyncOpenAI, third: str
) -> None:
    thread, _ = await ask(client, "Ants.")
    await ask(client, "Ants.", "Answer 1.", "Bees.")
    before = await line(platform, thread)

    beside = await ask(client, "Ants.", "Answer 1.", third)
    both = await branches(platform, thread)
    on_old = await ask(client, "Ants.", "Answer 1.", "Bees.", "Answer 2.", "Dogs.")
    seen_on_old = last_asked(platform)
    on_new = await ask(client, "Ants.", "Answer 1.", third, "Answer 3.", "Elks.")
    seen_on_new = last_asked(platform)

    assert (beside, on_old, on_new) == ((thread, "Answer 3."), (thread, "Answer 4."), (thread, "Answer 5."))
    assert len(both) == 2
    assert await branches(platform, thread) == both
    assert await line(platform, thread) == [*before, "Dogs.", "Answer 4."]
    other = ["Ants.", "Answer 1.", third, "Answer 3.", "Elks.", "Answer 5."]
    assert await line(platform, thread, both[1]) == other
    assert ("Answer 2." in seen_on_old, "Answer 3." in seen_on_old) == (True, False)
    assert ("Answer 2." in seen_on_new, "Answer 3." in seen_on_new) == (False, True)


@pytest.mark.parametrize(
    "change",
    [
        {"messages": talk(" Ants.\n", "\tAnswer 1. ", "Bees.")},
        {"messages": talk([{"type": "text", "text": "Ants."}], [{"type": "text", "text": "Answer 1."}], "Bees.")},
        {"messages": [{"role": "system", "content": "Be brief."}, *talk("Ants.", "Answer 1.", "Bees.")]},
        {"messages": [*talk("Ants.", "Answer 1."), {"role": "developer", "content": "Be rude."}, *talk("Bees.")]},
        {"messages": talk("Ants.", "<think>Plan: a long one.</think>\nAnswer 1.", "Bees.")},
        {"messages": talk("Ants.\r\n", '<details type="reasoning" done="true">\nx\n</details>\nAnswer 1.\n', "Bees.")},
        {"temperature": 0.1, "seed": 4, "stream": False, "max_tokens": 7},
        {
            "messages": [
                talk("Ants.")[0],
                {
                    "role": "assistant",
                    "content": "Answer 1.",
                    "reasoning_content": "Hm.",
                    "refusal": None,
                    "name": "starling",
                    "tool_calls": None,
                },
                talk("Bees.")[0],
            ]
        },
    ],
)
async def test_what_clients_change_about_messages_is_no_other_conversation(
    platform: ChatPlatform, client: AsyncOpenAI, change: dict[str, Any]
) -> None:
    thread, _ = await ask(client, "Ants.")

    again, _ = await ask(client, "Ants.", "Answer 1.", "Bees.", **change)

    assert again == thread
    assert await branches(platform, thread) == ["main"]


@pytest.mark.parametrize(
    "change",
    [
        {"user": "somebody else"},
        {"user": ""},
        {"model": "generalist"},
        {"messages": talk("Ants!", "Answer 1.", "Bees.")},
        {"messages": talk("ants.", "Answer 1.", "Bees.")},
        {"messages": talk("Ants.", "Answer 1", "Bees.")},
        {"messages": talk("Ants.", "Answer 2.", "Bees.")},
        {"messages": talk("Before.", "Yes.", "Ants.", "Answer 1.", "Bees.")},
        {"messages": [{"role": "system", "content": "Never imported."}, *talk("Before.", "Yes.", "Bees.")]},
    ],
)
async def test_another_conversation_begins_a_thread_with_the_messages_before(
    platform: ChatPlatform, client: AsyncOpenAI, change: dict[str, Any]
) -> None:
    thread, _ = await ask(client, "Ants.", user="somebody")
    platform.script.agent("t1", Answer("Answer 2."))
    sent: dict[str, Any] = {"user": "somebody", "messages": talk("Ants.", "Answer 1.", "Bees."), **change}

    other, answer = await ask(client, **sent)
    goes_on: dict[str, Any] = {
        **sent,
        "messages": [*sent["messages"], {"role": "assistant", "content": answer}, *talk("Cats.")],
    }
    again, _ = await ask(client, **goes_on)

    assert thread not in (other, again)
    assert other == again
    said = [message["content"] for message in sent["messages"] if message["role"] != "system"]
    assert (await line(platform, other))[: len(said) + 1] == [*said, answer]
    assert await line(platform, thread) == ["Ants.", "Answer 1."]


async def test_conversation_of_another_key_or_tenant_is_not_gone_on_with(platform: ChatPlatform) -> None:
    keys = [await platform.key(), await platform.key(), await platform.key(tenant="beehive")]
    threads: list[str] = []
    for key in keys:
        async with platform_client(platform, key) as client:
            texts = ("Ants.", "Answer 1.", "Bees.") if threads else ("Ants.",)
            threads.append((await ask(client, *texts))[0])

    assert len(set(threads)) == 3
    assert await line(platform, threads[0]) == ["Ants.", "Answer 1."]
    await platform.get(f"/v1/threads/{threads[2]}", 404)


async def test_answer_is_found_by_a_client_that_left_as_soon_as_it_had_the_text(
    platform: ChatPlatform, client: AsyncOpenAI
) -> None:
    for number in range(5):
        user, answer = f"user {number}", ""
        stream = await client.chat.completions.create(model="starling", messages=talk("Ants."), user=user, stream=True)
        run_id = stream.response.headers["X-Run-Id"]
        async for chunk in stream:
            if answer := (chunk.choices[0].delta.content or ""):
                break
        await stream.close()
        thread, _ = await ask(client, "Ants.", answer, "Bees.", user=user)

        assert thread == (await platform.get(f"/v1/runs/{run_id}"))["thread_id"]
        assert await line(platform, thread) == ["Ants.", answer, "Bees.", f"Answer {2 * number + 2}."]


async def test_conversation_goes_on_after_a_run_that_failed(platform: ChatPlatform, client: AsyncOpenAI) -> None:
    platform.script.forget()
    platform.script.supervisor(Answer(status=400, body='{"error": {"message": "Broken."}}'))
    thread, excuse = await ask(client, "Ants.")
    platform.script.forget()
    counting(platform)

    again, _ = await ask(client, "Ants.", excuse, "Bees.")

    assert again == thread
    assert await branches(platform, thread) == ["main"]


async def test_history_of_a_response_without_a_name_is_imported(platform: ChatPlatform, client: AsyncOpenAI) -> None:
    made = await client.responses.create(model="starling", input=talk("Rex is my dog.", "Noted.", "Who is Rex?"))
    run = await platform.get(f"/v1/runs/{made.id.removeprefix('resp_')}")

    assert await line(platform, run["thread_id"]) == ["Rex is my dog.", "Noted.", "Who is Rex?", "Answer 1."]
    assert "Rex is my dog." in last_asked(platform)


async def test_messages_that_go_on_at_the_same_time_get_a_branch_each(
    platform: ChatPlatform, client: AsyncOpenAI
) -> None:
    thread, _ = await ask(client, "Ants.")

    await asyncio.gather(*(ask(client, "Ants.", "Answer 1.", f"Bees {number}.") for number in range(3)))

    found = (await platform.get(f"/v1/threads/{thread}"))["branches"]
    assert [branch["runs"] for branch in found] == [2, 1, 1]


# Named threads


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
@pytest.mark.parametrize("way", ["header", "metadata"])
async def test_named_thread_takes_what_follows_the_last_answer_and_imports_once(
    platform: ChatPlatform, client: AsyncOpenAI, way: str, path: str
) -> None:
    named = in_thread(way, thread := new_id()) | {"path": path}

    first = await ask(client, "Ants.", "Yes.", "Bees.", **named)
    more = [*talk("Other.", "Words."), *talk("Cats."), *talk("Dogs.")]
    second = await ask(client, messages=more, **named)
    alone = await ask(client, "Elks.", user="whoever", **named)

    assert (first[0], second[0], alone[0]) == (thread, thread, thread)
    assert await branches(platform, thread) == ["main"]
    *said, request, answer, elks, last = await line(platform, thread)
    assert said == ["Ants.", "Yes.", "Bees.", "Answer 1."]
    assert ("Cats." in request, "Dogs." in request, "Other." in request) == (True, True, False)
    assert (answer, elks, last) == ("Answer 2.", "Elks.", "Answer 3.")


@pytest.mark.parametrize("keys", [1, 2])
@pytest.mark.parametrize("way", ["header", "metadata"])
async def test_messages_of_two_clients_to_a_named_thread_are_answered_in_turn(
    platform: ChatPlatform, way: str, keys: int
) -> None:
    named, shown = in_thread(way, thread := new_id()), [await platform.key() for _ in range(keys)]
    texts = ["Ants.", "Bees.", "Same.", "Same."]  # one after the other is sent by either client
    async with platform_client(platform, shown[0]) as one, platform_client(platform, shown[-1]) as other:
        asking = [ask(client, text, **named) for client, text in zip((one, other, one, other), texts, strict=True)]
        told = await asyncio.gather(*asking)

    said = await line(platform, thread)
    turns = list(zip(said[::2], said[1::2], strict=True))
    assert {found for found, _ in told} == {thread}
    assert await branches(platform, thread) == ["main"]
    assert [answer for _, answer in turns] == [f"Answer {number}." for number in range(1, 5)]
    assert sorted(turns) == sorted(zip(texts, (answer for _, answer in told), strict=True))
    for number, body in enumerate(platform.model.bodies, 1):
        seen = str(body["messages"])
        assert [f"Answer {before}." in seen for before in range(1, 5)] == [before < number for before in range(1, 5)]


async def test_of_two_clients_that_begin_a_named_thread_at_once_one_imports_its_messages(
    platform: ChatPlatform,
) -> None:
    named = in_thread("header", thread := new_id())
    async with (
        platform_client(platform, await platform.key()) as one,
        platform_client(platform, await platform.key()) as other,
    ):
        talks = (one, "A1.", "B1.", "C1."), (other, "A2.", "B2.", "C2.")
        told = dict(await asyncio.gather(*(_last_and_answer(*talk, **named) for talk in talks)))

    first, second = sorted(told, key=told.__getitem__)
    before = [f"{letter}{first[1]}." for letter in "AB"]
    assert await line(platform, thread) == [*before, first, "Answer 1.", second, "Answer 2."]


async def _last_and_answer(client: AsyncOpenAI, *texts: str, **named: Any) -> tuple[str, str]:
    return texts[-1], (await ask(client, *texts, **named))[1]


async def test_named_thread_that_was_filled_otherwise_imports_nothing(
    platform: ChatPlatform, client: AsyncOpenAI
) -> None:
    thread = new_id()
    await platform.post(f"/v1/threads/{thread}/states", 201, json={"messages": talk("Zebras.", "Fine.")})

    await ask(client, "Ants.", "Yes.", "Bees.", extra_headers={"X-Thread-Id": thread})

    assert await line(platform, thread) == ["Zebras.", "Fine.", "Bees.", "Answer 1."]


async def test_named_thread_is_that_of_the_tenant(platform: ChatPlatform, client: AsyncOpenAI) -> None:
    thread, key = new_id(), await platform.key(tenant="beehive")
    await ask(client, "Ants.", extra_headers={"X-Thread-Id": thread})
    async with platform_client(platform, key) as stranger:
        await ask(stranger, "Bees.", extra_headers={"X-Thread-Id": thread})

    assert await line(platform, thread) == ["Ants.", "Answer 1."]
    shown = {"Authorization": f"Bearer {key}"}
    assert await line(platform, thread, headers=shown) == ["Bees.", "Answer 2."]
    assert "Ants." not in last_asked(platform)


@pytest.mark.parametrize("name", ["a/fork", ".", "..", "x/states", "a" * 2_000])
async def test_name_that_no_thread_can_have_is_refused(platform: ChatPlatform, client: AsyncOpenAI, name: str) -> None:
    before = await platform.run_ids()

    for named in ({"extra_headers": {"X-Thread-Id": name}}, {"metadata": {"thread_id": name}}):
        with pytest.raises(openai.BadRequestError) as refused:
            await ask(client, "Ants.", **named)
        assert "hread" in refused.value.message

    assert await platform.run_ids() == before


# Repeated requests


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
async def test_repeated_request_joins_the_run_that_it_began(platform: ChatPlatform, path: str) -> None:
    shown, other = [{"Authorization": f"Bearer {await platform.key()}"} for _ in range(2)]
    body = {"model": "starling"} | ({"messages": talk("Ants.")} if path == CHAT else {"input": "Ants."})
    platform.script.held = True

    async def send(sent: Any, **headers: str) -> tuple[str, Any]:
        async with platform.client.post(path, json=sent, headers=headers) as response:
            assert response.status == 200, await response.text()
            return response.headers["X-Run-Id"], await response.json()

    async with asyncio.TaskGroup() as group:
        first = group.create_task(send(body, **shown))
        await platform.model.received(1)
        repeated = [group.create_task(send(body, **shown, **REPEATED)) for _ in range(3)]
        await asyncio.sleep(0.5)
        asked = len(platform.model.requests)
        for number in range(1, 9):
            platform.model.release(str(number))
    late = await send(body, **shown, **{"x-stainless-retry-count": "2"})
    others = [
        await send(body, **other, **REPEATED),
        await send({**body, "user": "another"}, **shown, **REPEATED),
        await send(body, **shown, **{"x-stainless-retry-count": "0"}),
        await send(body, **shown),
    ]
    again = await send(body, **shown, **REPEATED)

    told = [task.result() for task in (first, *repeated)]
    assert asked == 1
    assert {run for run, _ in (*told, late)} == {first.result()[0]}
    names = ("choices", "output")
    assert len({str([said.get(name) for name in names]) for _, said in (*told, late)}) == 1
    assert len({run for run, _ in (first.result(), *others)}) == 5
    assert again[0] in (others[2][0], others[3][0], first.result()[0])


async def test_repeated_request_that_never_arrived_begins_one_run(platform: ChatPlatform, client: AsyncOpenAI) -> None:
    told = [await ask(client, "Ants.", "Yes.", "Bees.", extra_headers=REPEATED) for _ in range(2)]

    assert told[0] == told[1]
    assert await branches(platform, told[0][0]) == ["main"]
    assert await line(platform, told[0][0]) == ["Ants.", "Yes.", "Bees.", "Answer 1."]


# Clean-up


_FULL = """
CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE 'could not extend file' USING ERRCODE = 'disk_full'; END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON runs EXECUTE FUNCTION full_disk()"""

type Fault = Callable[[ChatPlatform, str, ProxiedDatabase], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def full_disk(_: ChatPlatform, url: str, __: ProxiedDatabase) -> AsyncGenerator[None]:
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(_FULL.encode())
        yield
        await connection.execute(b"DROP FUNCTION full_disk CASCADE")


@asynccontextmanager
async def cut_connections(platform: ChatPlatform, _: str, proxied: ProxiedDatabase) -> AsyncGenerator[None]:
    await platform.services.storage.engine.dispose()  # which knows prepared statements, whose text isn't sent again
    proxied.proxy.cut("before", b"INTO runs", times=1_000_000)
    yield
    proxied.proxy.cut("before", b"never said", times=1)


@asynccontextmanager
async def exhausted_pool(platform: ChatPlatform, _: str, __: ProxiedDatabase) -> AsyncGenerator[None]:
    wait_shortly(platform.services.storage.engine)
    async with all_in_use(platform.services.storage.engine):
        yield


async def everything(platform: ChatPlatform) -> dict[str, Any]:
    """Return all threads with what is on their branches."""
    found: dict[str, Any] = {}
    for thread in (await platform.get("/v1/threads"))["threads"]:
        async with platform.client.get(f"/v1/threads/{thread['id']}") as response:
            if response.status == 404:  # deleted meanwhile
                continue
            names = [branch["id"] for branch in (await response.json())["branches"]]
        found[thread["id"]] = {name: await line(platform, thread["id"], name) for name in names}
    return found


def refused_bodies(thread: str) -> Sequence[dict[str, Any]]:
    fresh = new_id()
    return (
        {"messages": talk("Ants.", "Answer 1.", "Cats.")},
        {"messages": talk("Ants.", "Answer 1.", "Bees.", "Answer 2.", "Cats.")},
        {"messages": talk("Xylophones.", "Yes.", "Zithers.")},
        {"messages": talk("Violins.")},
        {"messages": talk("Xylophones.", "Yes.", "Zithers."), "metadata": {"thread_id": fresh}},
        {"messages": talk("Xylophones.", "Yes.", "Zithers."), "metadata": {"thread_id": thread}},
    )


@pytest.mark.parametrize("fault", [full_disk, cut_connections, exhausted_pool])
async def test_request_that_is_refused_without_the_database_leaves_nothing(
    database_url: str, tmp_path: Path, fault: Fault
) -> None:
    async with proxied(database_url) as through, chat_platform(through.url, tmp_path) as platform:
        counting(platform)
        async with platform_client(platform) as client:
            thread, _ = await ask(client, "Ants.")
            await ask(client, "Ants.", "Answer 1.", "Bees.")
            before, bodies = await everything(platform), refused_bodies(thread)
            platform.services.runs.repository._retry_seconds = 0.5  # pyright: ignore[reportPrivateUsage] - not 5 s

            async with fault(platform, database_url, through):
                refused = await asyncio.gather(*(ask(client, **body) for body in bodies), return_exceptions=True)
            await _until(platform, before)
            after = [await ask(client, **body) for body in bodies]

        assert [getattr(error, "status_code", error) for error in refused] == [503] * len(bodies)
        assert [found for found, _ in after][:2] == [thread, thread]
        assert after[-1][0] == thread
        assert len(await branches(platform, thread)) == 2


async def _until(platform: ChatPlatform, before: dict[str, Any]) -> None:
    """Wait until all threads are as they were."""
    for _ in range(300):
        with suppress(AssertionError):  # a branch that is deleted while it is read
            if await everything(platform) == before:
                return
        await asyncio.sleep(0.2)
    assert await everything(platform) == before


async def test_request_that_is_refused_because_its_key_was_used_leaves_nothing(
    platform: ChatPlatform, client: AsyncOpenAI
) -> None:
    used = {"extra_headers": {"Idempotency-Key": new_id()}}
    thread, _ = await ask(client, "Ants.", **used)
    await ask(client, "Ants.", "Answer 1.", "Bees.")
    before = await everything(platform)

    for body in refused_bodies(thread):
        with pytest.raises(openai.APIStatusError) as refused:
            await ask(client, **body, **used)
        assert 400 <= refused.value.status_code < 500
        assert isinstance(refused.value.body, dict)

    assert await everything(platform) == before


async def test_request_to_import_into_a_thread_whose_first_run_goes_on_leaves_nothing(
    platform: ChatPlatform, client: AsyncOpenAI
) -> None:
    thread = new_id()
    platform.script.held = True
    async with asyncio.TaskGroup() as group:
        first = group.create_task(ask(client, "Ants.", extra_headers={"X-Thread-Id": thread}))
        await platform.model.received(1)
        second = group.create_task(
            platform.client.post(
                CHAT,
                json={"model": "starling", "messages": talk("X.", "Y.", "Z.")},
                headers={"X-Thread-Id": thread, "Authorization": f"Bearer {client.api_key}"},
            )
        )
        await asyncio.sleep(1)
        for number in range(1, 9):
            platform.model.release(str(number))
    response = second.result()
    await response.read()

    said = ["Ants.", "Answer 1."]
    assert first.result()[0] == thread
    assert await line(platform, thread) == (said if response.status == 409 else [*said, "Z.", "Answer 2."])


async def test_request_that_is_refused_because_too_many_wait_leaves_nothing(database_url: str, tmp_path: Path) -> None:
    async with chat_platform(database_url, tmp_path, queued_runs_per_tenant=1, runs_per_tenant=1) as platform:
        counting(platform)
        async with platform_client(platform) as client:
            thread, _ = await ask(client, "Ants.")
            await ask(client, "Ants.", "Answer 1.", "Bees.")
            platform.script.held = True
            for name in ("busy", "queued"):
                await platform.post("/v1/runs", 202, json={"input": "Wait.", "thread_id": name})
            before = await everything(platform)
            for body in refused_bodies(thread):
                with pytest.raises(openai.RateLimitError):
                    await ask(client, **body)
            after = await everything(platform)
            for run_id in (await platform.run_ids())[:2]:
                await platform.client.post(f"/v1/runs/{run_id}/cancel")

    assert after == before
