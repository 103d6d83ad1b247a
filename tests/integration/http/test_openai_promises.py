"""What is promised to OpenAI's clients: models, both APIs, errors, streams, disconnects, scopes and switches."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import openai
import pytest
import pytest_asyncio

from architect.compiler import compile_team
from architect.team_world import TeamWorld
from starling.core.errors import DatabaseUnavailableError
from starling.core.ids import new_id
from starling.core.principal import Grant, Scope
from starling.core.tool_calls import Effect
from starling.infra.postgres.runs.reader import RunReader
from tests.support.chat_platform import ChatPlatform, chat_platform, extension_of, platform_client, text_of
from tests.support.effect_recorder import AGENT
from tests.support.gateway_harness import wait_for
from tests.support.model_script import Answer
from tests.support.platform import activate_team, calls, decision, task
from tests.support.team_specs import member, team_spec

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
HELLO: dict[str, Any] = {"model": "starling", "messages": [{"role": "user", "content": "hello"}]}
HELLO_RESPONSE: dict[str, Any] = {"model": "starling", "input": "hello"}
DOORS: dict[str, dict[str, Any]] = {CHAT: HELLO, RESPONSES: HELLO_RESPONSE}
IMAGE = "data:image/png;base64,iVBORw0KGgo="
SCHEMA: dict[str, Any] = {"name": "s", "schema": {"type": "object"}}
FUNCTION: dict[str, Any] = {"name": "f", "parameters": {"type": "object", "properties": {}}}
TEAM = "effects_team"
CALLS = 6  # of the model in a run of two tasks


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ChatPlatform]:
    async with chat_platform(module_database_url, tmp_path_factory.mktemp("platform")) as platform:
        world = TeamWorld({"effects": {"read_it": Effect.READ}}, {})
        spec = team_spec(member("reader", server="effects"), name=TEAM)
        await activate_team(platform.services, compile_team(spec, world, creator=None, activator=None))
        yield platform


@pytest.fixture
def platform(opened: ChatPlatform) -> ChatPlatform:
    """The platform of this module, whose model knows nothing yet."""
    opened.script.forget()
    opened.model.forget()
    return opened


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def refusal(platform: ChatPlatform, path: str, body: Any, status: int, **headers: str) -> dict[str, Any]:
    """Return the error that a body gets; it has OpenAI's form."""
    said = await platform.post(path, status, json=body, headers=headers)
    assert set(said) == {"error"}, said
    assert set(said["error"]) >= {"message", "type", "param", "code"}, said
    assert said["error"]["message"]
    return said["error"]


@asynccontextmanager
async def streaming(platform: ChatPlatform, path: str, **body: Any) -> AsyncGenerator[AsyncIterator[str]]:
    """Send a request that is streamed; give its lines."""
    sent = {**DOORS[path], "stream": True, **body}
    async with platform.client.post(path, json=sent) as response:
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        yield (raw.decode().rstrip("\n") async for raw in response.content)


async def lines_of(platform: ChatPlatform, path: str, **body: Any) -> list[str]:
    async with streaming(platform, path, **body) as lines:
        return [line async for line in lines if line]


async def _read(stream: AsyncIterator[str], noted: list[str]) -> None:
    """Note the lines of a stream as they come."""
    async for line in stream:
        noted += [line] if line else []


def data_of(lines: Sequence[str]) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in lines if line.startswith("data: ") and line != "data: [DONE]"]


def deltas(chunks: Sequence[dict[str, Any]], name: str) -> list[str]:
    found = [choice["delta"].get(name) for chunk in chunks for choice in chunk["choices"]]
    return [text for text in found if text]


def two_tasks(platform: ChatPlatform, *, held: bool = True) -> None:
    """Have each run do two tasks, and wait with its final answer for the gate `qa`."""
    final = Answer("The final text [1] [2].", hold="qa" if held else "")
    tasks = task("t1", "generalist"), task("t2", "generalist")
    platform.script.run(decision(*tasks), t1=Answer("A draft."), t2=Answer("Another."), qa=final)


# Models


async def test_models_are_the_platform_and_what_the_key_may_use(platform: ChatPlatform) -> None:
    mine, others = f"a{new_id()[-8:]}", f"b{new_id()[-8:]}"
    elsewhere = await platform.key(Scope.TEAMS, tenant="models")
    await platform.post("/v1/agents", 201, json={"id": mine})
    await platform.post("/v1/agents", 201, json={"id": others}, headers=bearer(elsewhere))

    async with platform_client(platform, await platform.key()) as client:
        every = [model.id async for model in client.models.list()]
        shown = await client.models.retrieve(mine)
        with pytest.raises(openai.NotFoundError) as unknown:
            await client.models.retrieve(others)
    async with platform_client(platform, await platform.key(grant=Grant(frozenset({"nothing"})))) as client:
        narrow = [model.id async for model in client.models.list()]
    async with platform_client(platform, await platform.key(grant=Grant(tools=frozenset({"effects.put"})))) as client:
        partly = [model.id async for model in client.models.list()]
    async with platform_client(platform, await platform.key(tenant="models")) as client:
        there = [model.id async for model in client.models.list()]

    assert every[0] == "starling"
    assert {mine, AGENT, TEAM, "generalist"} <= set(every)
    assert "architect" not in every
    assert len(every) == len(set(every))
    assert (shown.id, shown.object) == (mine, "model")
    assert isinstance(unknown.value.body, dict)
    assert others not in every
    assert "starling" in narrow
    assert not {AGENT, TEAM} & set(narrow)
    assert (AGENT in partly, TEAM in partly) == (True, False)  # the team's tool is another one
    assert (others in there, mine in there, TEAM in there) == (True, False, False)


@pytest.mark.parametrize("path", DOORS)
async def test_model_that_the_key_may_not_use_is_not_found_and_no_run_begins(platform: ChatPlatform, path: str) -> None:
    narrow = bearer(await platform.key(grant=Grant(frozenset({"nothing"}))))
    before = await platform.run_ids()

    errors = [
        await refusal(platform, path, {**DOORS[path], "model": model}, 404, **narrow)
        for model in (AGENT, TEAM, "architect", "gpt-4o", "Starling", "starling ")
    ]

    assert {(error["param"], error["code"]) for error in errors} == {("model", "model_not_found")}
    assert await platform.run_ids() == before


@pytest.mark.parametrize("model", [AGENT, TEAM])
async def test_agents_and_teams_answer_as_models(platform: ChatPlatform, model: str) -> None:
    reading = calls(("read_it", {"what": "the meter"}))
    async with platform_client(platform, await platform.key()) as client:
        for body in DOORS.values():
            platform.script.forget()
            platform.script.run(
                decision(task("t1", "reader")), decision(), t1=[reading, Answer("It is fine.")], qa=Answer("Fine [1].")
            )
            if "messages" in body:
                told = await client.chat.completions.create(
                    model=model, messages=[{"role": "user", "content": "Look!"}]
                )
                answered = (told.model, extension_of(told)["status"], text_of(told))
            else:
                made = await client.responses.create(model=model, input="Look!")
                answered = (made.model, {"completed": "succeeded"}.get(made.status or ""), made.output_text)

            assert answered[:2] == (model, "succeeded")
            assert "fine" in answered[2].lower()


# Completions


async def test_completion_has_openais_fields_and_those_of_the_run(platform: ChatPlatform) -> None:
    two_tasks(platform, held=False)

    async with platform_client(platform, await platform.key()) as client:
        raw = await client.chat.completions.with_raw_response.create(
            model="starling", messages=[{"role": "user", "content": "hello"}]
        )
    told, more = raw.parse(), extension_of(raw.parse())

    assert (told.object, told.model, len(told.choices)) == ("chat.completion", "starling", 1)
    assert told.id == f"chatcmpl-{more['run_id'].replace('-', '')}"
    assert told.choices[0].finish_reason == "stop"
    assert text_of(told).startswith("The final text")
    assert set(more) >= {"run_id", "thread_id", "status", "citations", "effects", "degraded"}
    assert raw.headers["X-Run-Id"] == more["run_id"]
    asked = len(platform.model.requests)
    assert told.usage is not None
    assert (told.usage.prompt_tokens, told.usage.completion_tokens) == (11 * asked, 7 * asked)
    assert told.usage.total_tokens == 18 * asked


async def test_stream_tells_progress_then_the_text_in_one_piece_then_usage_and_done(platform: ChatPlatform) -> None:
    two_tasks(platform)

    async with streaming(platform, CHAT, stream_options={"include_usage": True}) as lines:
        early: list[str] = []
        reading = asyncio.ensure_future(_read(lines, early))
        await platform.model.received(CALLS)
        await wait_for(lambda: any("reasoning_content" in line for line in early))
        before = data_of(early)
        platform.model.release("qa")
        await reading
    chunks = data_of(early)

    assert deltas(before, "content") == []
    assert deltas(before, "reasoning_content")
    assert len(deltas(chunks, "content")) == 1
    assert deltas(chunks, "content")[0].startswith("The final text")
    assert early[-1] == "data: [DONE]"
    assert early.count("data: [DONE]") == 1
    *others, last = chunks
    assert last["choices"] == []
    asked = len(platform.model.requests)
    assert (last["usage"]["prompt_tokens"], last["usage"]["completion_tokens"]) == (11 * asked, 7 * asked)
    assert not [chunk for chunk in others if chunk.get("usage")]
    [end] = [chunk for chunk in others if chunk["choices"][0]["finish_reason"]]
    assert end["choices"][0]["finish_reason"] == "stop"
    assert end["starling"]["status"] == "succeeded"
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"


@pytest.mark.parametrize("options", [None, {"include_usage": False}, {}])
async def test_stream_has_no_usage_chunk_unless_it_is_asked_for(platform: ChatPlatform, options: Any) -> None:
    platform.script.supervisor(decision(reply="Hello."))

    lines = await lines_of(platform, CHAT, stream_options=options)

    assert all(chunk["choices"] and not chunk.get("usage") for chunk in data_of(lines))
    assert lines[-1] == "data: [DONE]"


@pytest.mark.parametrize("streamed", [False, True])
async def test_run_that_fails_is_an_answer_with_a_text(platform: ChatPlatform, streamed: bool) -> None:
    platform.script.supervisor(Answer(status=400, body='{"error": {"message": "The model is broken."}}'))

    if streamed:
        lines = await lines_of(platform, CHAT)
        text = "".join(deltas(data_of(lines), "content"))
        assert lines[-1] == "data: [DONE]"
    else:
        told = await platform.post(CHAT, json=HELLO)
        text = told["choices"][0]["message"]["content"]

    assert text.strip()


# Errors


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"tools": [{"type": "function", "function": FUNCTION}]}, "tools"),
        ({"functions": [FUNCTION]}, "functions"),
        ({"n": 2}, "n"),
        ({"n": 0}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": SCHEMA}}, "response_format"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": IMAGE}}]}]}, "messages"),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]},
                    {"role": "assistant", "content": "A file."},
                    {"role": "user", "content": "Read it."},
                ]
            },
            "messages",
        ),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "text", "text": "hello"},
                            {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
                        ],
                    }
                ]
            },
            "messages",
        ),
        ({"messages": list[Any]()}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"role": "system", "content": "Be brief."}]}, "messages"),
        ({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}, "messages"),
        ({"messages": [{"role": "robot", "content": "a"}]}, "messages"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages"),
        ({"messages": [{"role": "user", "content": "   "}]}, "messages"),
        ({"model": 7}, "model"),
        ({"stream": "perhaps"}, "stream"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"audio": {"voice": "alloy", "format": "mp3"}}, "audio"),
        ({"metadata": {"thread_id": "a/.."}}, "metadata"),
    ],
)
async def test_completion_that_cannot_be_made_is_refused_by_the_name_of_its_parameter(
    platform: ChatPlatform, more: dict[str, Any], param: str
) -> None:
    before = await platform.run_ids()

    for streamed in ({}, {"stream": True}):
        error = await refusal(platform, CHAT, {**HELLO, **streamed, **more}, 400)

        assert (error["param"] or "").partition(".")[0].partition("[")[0] == param
        assert error["type"] == "invalid_request_error"
    assert await platform.run_ids() == before


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"text": {"format": {"type": "json_object"}}}, "text"),
        ({"text": {"format": {"type": "json_schema", **SCHEMA}}}, "text"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": IMAGE}]}]}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}, "input"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"input": list[Any]()}, "input"),
        ({"input": ""}, "input"),
        ({"previous_response_id": "resp_nobodys"}, "previous_response_id"),
        ({"previous_response_id": f"resp_{new_id()}"}, "previous_response_id"),
        ({"previous_response_id": 7}, "previous_response_id"),
    ],
)
async def test_response_that_cannot_be_made_is_refused_by_the_name_of_its_parameter(
    platform: ChatPlatform, more: dict[str, Any], param: str
) -> None:
    before = await platform.run_ids()
    async with platform.client.post(RESPONSES, json={**HELLO_RESPONSE, **more}) as response:
        status, said = response.status, await response.json()

    assert status in ((400, 404) if param == "previous_response_id" else (400,))
    assert said["error"]["param"].partition(".")[0].partition("[")[0] == param
    assert await platform.run_ids() == before


@pytest.mark.parametrize("path", DOORS)
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"7", b"\xff", b"null", b'{"model": "starling"}'])
async def test_body_that_is_no_request_gets_openais_error(platform: ChatPlatform, path: str, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    async with platform.client.post(path, data=body, headers=headers) as response:
        said = await response.json()

    assert response.status == 400
    assert said["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "more",
    [
        {"n": 1, "logprobs": False, "response_format": {"type": "text"}, "tools": [], "temperature": 2, "seed": 1},
        {"n": None, "tools": None, "functions": None, "logprobs": None, "response_format": None, "user": None},
        {"stop": ["\n"], "max_tokens": 5, "max_completion_tokens": 5, "store": True, "metadata": None, "stream": None},
        {"modalities": ["text"], "logit_bias": {}, "service_tier": "auto", "reasoning_effort": "low", "unheard": {}},
        {"top_p": 1, "parallel_tool_calls": True, "presence_penalty": 1, "tool_choice": "none"},
        {"top_logprobs": 0, "include": [], "prompt": None, "conversation": None, "web_search_options": None},
        {"include": ["reasoning.encrypted_content"], "truncation": "auto", "reasoning": {"effort": "low"}},
    ],
)
async def test_parameters_that_change_nothing_are_accepted(platform: ChatPlatform, more: dict[str, Any]) -> None:
    platform.script.supervisor(decision(reply="Hello."))

    told = await platform.post(CHAT, json={**HELLO, **more})
    made = await platform.post(RESPONSES, json={**HELLO_RESPONSE, **more})

    assert told["choices"][0]["message"]["content"] == made["output"][0]["content"][0]["text"] == "Hello."


# System texts


@pytest.mark.parametrize("role", ["system", "developer", "instructions"])
async def test_system_texts_are_data_for_the_supervisor_and_the_writer_of_the_answer(
    platform: ChatPlatform, role: str
) -> None:
    two_tasks(platform, held=False)
    wish = "Speak like a zebrafinch."

    if role == "instructions":
        await platform.post(RESPONSES, json={**HELLO_RESPONSE, "instructions": wish})
    else:
        messages = [{"role": role, "content": wish}, *HELLO["messages"]]
        await platform.post(CHAT, json={**HELLO, "messages": messages})

    for body in platform.model.bodies:
        first, *others = [str(message["content"]) for message in body["messages"]]
        asked_for = "You supervise agents" in first or "You write the final answer" in first
        assert wish not in first
        assert any(wish in text for text in others) == asked_for
        assert len([message for message in body["messages"] if message["role"] in ("system", "developer")]) == 1


# Responses


async def test_response_is_the_run_and_is_retrieved_as_it_was(platform: ChatPlatform) -> None:
    platform.script.supervisor(decision(reply="Hello."))
    async with (
        platform_client(platform, await platform.key()) as client,
        platform_client(platform, await platform.key(tenant="elsewhere")) as stranger,
    ):
        made = await client.responses.create(model="starling", input=[{"role": "user", "content": "hello"}])
        again = await client.responses.retrieve(made.id)
        run = await platform.get(f"/v1/runs/{made.id.removeprefix('resp_')}")

        assert (made.object, made.status, made.output_text, made.error) == ("response", "completed", "Hello.", None)
        assert (again.id, again.status, again.output, again.usage) == (made.id, "completed", made.output, made.usage)
        assert (made.usage and made.usage.input_tokens, run["status"]) == (11, "succeeded")
        for response_id in (made.id, f"resp_{new_id()}", "resp_nobodys", run["run_id"]):
            for call in (stranger.responses.retrieve, stranger.responses.cancel):
                with pytest.raises(openai.NotFoundError) as refused:
                    await call(response_id)
                assert isinstance(refused.value.body, dict)
        with pytest.raises(openai.BadRequestError) as unknown:
            await stranger.responses.create(model="starling", input="go on", previous_response_id=made.id)
        assert (unknown.value.param, unknown.value.code) == ("previous_response_id", "previous_response_not_found")


async def test_response_streams_semantic_events_and_tells_progress_as_comments(platform: ChatPlatform) -> None:
    two_tasks(platform)
    platform.model.release("qa")

    lines = await lines_of(platform, RESPONSES)
    async with platform_client(platform, await platform.key()) as client:
        events = [event async for event in await client.responses.create(model="starling", input="hi", stream=True)]

    kinds = [event["type"] for event in data_of(lines)]
    assert kinds == [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    assert [event["sequence_number"] for event in data_of(lines)] == list(range(len(kinds)))
    text = next(number for number, line in enumerate(lines) if line == "event: response.output_text.delta")
    assert any(line.startswith(":") for line in lines[:text])
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
    last, delta = events[-1], events[4]
    assert last.type == "response.completed"
    assert delta.type == "response.output_text.delta"
    assert last.response.output_text == delta.delta
    assert last.response.usage is not None


# Connections that break


async def test_closing_the_connection_cancels_the_run_after_three_seconds(platform: ChatPlatform) -> None:
    two_tasks(platform)
    before = set(await platform.run_ids())
    requests = [
        (asyncio.ensure_future(platform.client.post(path, json={**body, "stream": streamed})), streamed)
        for path, body in DOORS.items()
        for streamed in (False, True)
    ]
    await platform.model.received(CALLS * len(requests))
    begun = set(await platform.run_ids()) - before
    closing = monotonic()
    for request, streamed in requests:
        if streamed:
            (await request).close()
        else:
            request.cancel()

    async def ended(run_id: str) -> tuple[str, float]:
        return (await platform.ended(run_id))["status"], monotonic() - closing

    async with asyncio.timeout(60):
        found = await asyncio.gather(*(ended(run_id) for run_id in begun))

    assert [status for status, _ in found] == ["cancelled"] * len(requests)
    assert min(seconds for _, seconds in found) > 2.9


@pytest.mark.parametrize("error", [RuntimeError("It broke."), DatabaseUnavailableError("Away."), KeyError("seq")])
@pytest.mark.parametrize("path", DOORS)
async def test_exception_in_mid_stream_ends_it_with_an_error_event(
    platform: ChatPlatform, path: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_tasks(platform)
    follow = RunReader.batches

    async def broken(self: RunReader, key: Any, listener: Any) -> AsyncGenerator[Any]:
        async for batch in follow(self, key, listener):
            yield batch
            raise error

    monkeypatch.setattr(RunReader, "batches", broken)
    lines = await lines_of(platform, path)
    async with platform_client(platform) as client:
        stream = await (
            client.responses.create(model="starling", input="hi", stream=True)
            if path == RESPONSES
            else client.chat.completions.create(
                model="starling", messages=[{"role": "user", "content": "hi"}], stream=True
            )
        )
        with pytest.raises(openai.APIError):
            assert [event async for event in stream] == []
    platform.model.release("qa")

    last = data_of(lines)[-1]
    assert last["error"]["message"]
    if path == RESPONSES:
        assert ("event: error" in lines[-2], last.get("type")) == (True, "error"), lines[-2:]
    assert "data: [DONE]" not in lines
    assert "response.completed" not in [event.get("type") for event in data_of(lines)]
    assert "It broke." not in json.dumps(last)


# Scopes and switches


@pytest.mark.parametrize("scope", [scope for scope in Scope if scope != Scope.RUN])
async def test_key_without_the_scope_run_is_refused_at_each_door(platform: ChatPlatform, scope: Scope) -> None:
    shown, before = bearer(await platform.key(scope)), await platform.run_ids()
    gone = f"{RESPONSES}/resp_{before[0] if before else new_id()}"
    doors: list[tuple[str, Any]] = [(CHAT, HELLO), (RESPONSES, HELLO_RESPONSE), (f"{gone}/cancel", {})]

    errors = [await refusal(platform, path, body, 403, **shown) for path, body in doors]
    read = [await platform.get(path, 403, headers=shown) for path in ("/v1/models", "/v1/models/starling", gone)]

    assert all("run" in error["message"] for error in (*errors, *(said["error"] for said in read)))
    assert await platform.run_ids() == before


async def test_wrong_key_gets_openais_error_at_each_door(platform: ChatPlatform) -> None:
    async with platform_client(platform, "sk-nobodys") as client:
        for call in (
            client.models.list(),
            client.chat.completions.create(model="starling", messages=[{"role": "user", "content": "hi"}]),
            client.responses.create(model="starling", input="hi"),
            client.responses.retrieve(f"resp_{new_id()}"),
        ):
            with pytest.raises(openai.AuthenticationError) as refused:
                await call
            assert isinstance(refused.value.body, dict)
            assert refused.value.body["message"]


@pytest.mark.parametrize("path", DOORS)
@pytest.mark.parametrize(
    ("kind", "name", "models"),
    [
        ("tenant", "default", (AGENT, TEAM)),
        ("server", "effects", (AGENT, TEAM)),
        ("agent", AGENT, (AGENT,)),
        ("agent", TEAM, (TEAM,)),
    ],
)
async def test_what_is_switched_off_is_no_model_and_is_not_called_by_the_platform(
    platform: ChatPlatform, path: str, kind: str, name: str, models: Sequence[str]
) -> None:
    async def answered(what: str) -> str:
        platform.script.forget()
        used = task("t1", name if kind == "agent" else AGENT)
        platform.script.run(decision(used), decision(), t1=calls(("read_it", {"what": what})), qa=Answer("Nothing."))
        return str(await platform.post(path, json=DOORS[path]))

    switch = {"kind": kind, "name": name}
    await platform.put("/v1/switches", json=switch | {"reason": "An incident."})
    try:
        async with asyncio.timeout(60):  # until the worker has read of it
            while "is switched off: An incident." not in await answered(what := new_id()):
                pass
        before = await platform.run_ids()
        refused = [await refusal(platform, path, {**DOORS[path], "model": model}, 404) for model in models]
        begun = await platform.run_ids()
    finally:
        await platform.delete("/v1/switches", 204, params=switch)

    assert {(error["code"], error["param"]) for error in refused} == {("model_not_found", "model")}
    assert (begun, all("is switched off: An incident." in it["message"] for it in refused)) == (before, True)
    assert [line for line in platform.effects.lines("arrived") if line["what"] == what] == []
