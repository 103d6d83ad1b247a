"""Retries, fallbacks and downgrades within one time limit."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace

import pytest

from starling.core.errors import LLMConnectionError, LLMInvalidResponse, LLMServerError, LLMTimeout
from starling.core.llm import FailedAttempt, Message, ModelReply, ModelRequest, ModelRole, ResponseSchema, TextDelta
from starling.infra.llm.chat_model import Endpoint
from starling.infra.llm.client import FallbackModelClient
from starling.infra.llm.openai_endpoint import EndpointModel, open_session
from tests.support.model_script import Answer, Rule, Script, When
from tests.support.model_server import ModelServer
from tests.support.set_clock import SetClock

ASKED = ModelRequest(ModelRole.ROUTER, (Message("user", "Say hello."),), timeout=20)
CODE = replace(ASKED, role=ModelRole.CODING)
BUSY = Answer(status=503, body="busy", content_type="text/plain")


def no_backoff(_: int) -> float:
    return 0.0


@dataclass(frozen=True, slots=True)
class Setting:
    """Models `first` and `second`, `first` for all roles unless a test says otherwise."""

    server: ModelServer
    rules: list[Rule]
    clock: SetClock
    first: EndpointModel
    second: EndpointModel

    def answers(self, model: str, answer: Answer, nth: int | None = None) -> None:
        self.rules.append(Rule(answer, When(model=model, nth=nth)))

    def models(self, *fallbacks: EndpointModel, router: EndpointModel | None = None) -> FallbackModelClient:
        chain = (self.first, *fallbacks)
        chains = dict.fromkeys(ModelRole, chain) | {ModelRole.ROUTER: (router,) if router else chain}
        return FallbackModelClient(chains, self.clock, self.named, backoff=no_backoff)

    def named(self, name: str) -> EndpointModel:
        return {model.name: model for model in (self.first, self.second)}[name]

    def asked(self) -> list[str]:
        return [body["model"] for body in self.server.bodies]


@pytest.fixture
async def setting() -> AsyncGenerator[Setting]:
    rules: list[Rule] = []
    script: list[Script] = []

    async def respond(body: dict[str, object]) -> Answer:
        script[:] = script or [Script(*rules)]
        return await script[0](body)

    async with ModelServer(respond) as server, open_session(trust_env=False) as session:
        endpoint = Endpoint(server.url)
        first, second = (EndpointModel(f"local:{name}", name, endpoint, session) for name in ("first", "second"))
        yield Setting(server, rules, SetClock(), first, second)


async def test_overloaded_model_is_retried(setting: Setting) -> None:
    setting.answers("first", BUSY, nth=1)
    setting.answers("first", Answer("Hello."))

    reply = await setting.models().respond(ASKED)

    assert reply.content == "Hello."
    assert reply.warnings == ("Model local:first: the endpoint answered 503: busy",)


async def test_fallback_follows_after_two_retries(setting: Setting) -> None:
    setting.answers("first", BUSY)
    setting.answers("second", Answer("Hello."))

    reply = await setting.models(setting.second).respond(ASKED)

    assert reply.model == "local:second"
    assert setting.asked() == ["first", "first", "first", "second"]
    assert reply.warnings == ("Model local:first: the endpoint answered 503: busy",)


@pytest.mark.parametrize(
    "refusal",
    [Answer(status=401, body="{}"), Answer(status=429, headers={"Retry-After": "9"}, body="{}")],
    ids=["refused", "long wait"],
)
async def test_model_that_refuses_or_names_a_long_wait_is_not_asked_again_if_another_is_available(
    setting: Setting, refusal: Answer
) -> None:
    setting.answers("first", refusal)
    setting.answers("second", Answer("Hello."))

    await setting.models(setting.second).respond(ASKED)

    assert setting.asked() == ["first", "second"]


async def test_last_error_is_raised_to_the_caller(setting: Setting) -> None:
    setting.answers("first", BUSY)

    with pytest.raises(LLMServerError, match="busy"):
        await setting.models().respond(ASKED)

    assert setting.asked() == ["first"] * 3


async def test_invalid_response_in_place_of_a_document_is_raised_without_fallback(setting: Setting) -> None:
    setting.answers("first", Answer(body="garbage"))
    document = replace(ASKED, response=ResponseSchema("document", {"type": "object"}))

    with pytest.raises(LLMInvalidResponse):
        await setting.models(setting.second).respond(document)

    assert setting.asked() == ["first"]


async def test_invalid_response_is_asked_for_once_more_from_the_next_model(setting: Setting) -> None:
    setting.answers("first", Answer(body="garbage"))
    setting.answers("second", Answer("Hello."))

    reply = await setting.models(setting.second).respond(ASKED)

    assert (reply.content, setting.asked()) == ("Hello.", ["first", "second"])
    assert "not a JSON object" in reply.warnings[0]


async def test_invalid_response_of_the_only_model_is_asked_for_once_more(setting: Setting) -> None:
    setting.answers("first", Answer(body="garbage"))

    with pytest.raises(LLMInvalidResponse):
        await setting.models().respond(ASKED)

    assert setting.asked() == ["first", "first"]


async def test_router_model_is_the_last_fallback_with_a_warning(setting: Setting) -> None:
    setting.answers("first", Answer(status=404, body="{}"))
    setting.answers("second", Answer("Hello."))

    reply = await setting.models(router=setting.second).respond(CODE)

    assert reply.model == "local:second"
    assert reply.warnings[-1] == "local:second is used instead of the model of role coding."


async def test_retry_wait_longer_than_the_time_limit_is_not_started(setting: Setting) -> None:
    setting.answers("first", Answer(status=429, headers={"Retry-After": "30"}, body="{}"))

    with pytest.raises(LLMServerError):
        await setting.models().respond(ASKED)

    assert setting.asked() == ["first"]


async def test_failed_attempts_are_reported_as_they_happen(setting: Setting) -> None:
    setting.answers("first", Answer(status=429, headers={"Retry-After": "0.01"}, body="slow down"), nth=1)
    setting.answers("first", BUSY, nth=1)
    setting.answers("first", Answer(status=401, body="no"), nth=1)
    setting.answers("second", Answer("Hello."))
    reported: list[tuple[FailedAttempt, int]] = []

    def on_failed_attempt(attempt: FailedAttempt) -> None:
        reported.append((attempt, len(setting.asked())))

    reply = await setting.models(setting.second).respond(replace(ASKED, on_failed_attempt=on_failed_attempt))

    waits = "Model local:first is rate limited, again in 0.01 s."
    assert [(attempt.reason[-7:], attempt.warning, sent) for attempt, sent in reported] == [
        ("ow down", waits, 1), ("3: busy", "", 2), ("401: no", "", 3),
    ]  # fmt: skip
    assert reply.warnings[0] == waits


async def test_last_failed_attempt_is_reported_before_its_error_is_raised(setting: Setting) -> None:
    setting.answers("first", BUSY)
    reported: list[FailedAttempt] = []

    with pytest.raises(LLMServerError):
        await setting.models().respond(replace(ASKED, on_failed_attempt=reported.append))

    assert len(reported) == 3


async def test_hanging_model_leaves_time_for_the_fallback(setting: Setting) -> None:
    setting.answers("first", Answer(hold="never"))
    setting.answers("second", Answer("Hello."))

    reply = await setting.models(setting.second).respond(replace(ASKED, timeout=3))

    assert reply.model == "local:second"
    assert reply.warnings == ("Model local:first: no complete answer within 2 s.",)


async def test_model_that_timed_out_is_skipped_for_a_minute(setting: Setting) -> None:
    setting.answers("first", Answer(hold="never"), nth=1)
    setting.answers("first", Answer("First."))
    setting.answers("second", Answer("Second."))
    models = setting.models(setting.second)
    await models.respond(replace(ASKED, timeout=3))

    skipping = await models.respond(ASKED)
    setting.clock.seconds = 61
    back = await models.respond(ASKED)

    assert (skipping.content, back.content) == ("Second.", "First.")
    assert skipping.warnings == ("Model local:first is skipped for a while because it did not answer recently.",)
    assert back.warnings == ()


async def test_unreachable_model_is_skipped_for_a_minute(setting: Setting) -> None:
    async with open_session(trust_env=False) as session:
        gone = EndpointModel("local:gone", "gone", Endpoint("http://127.0.0.1:9/v1"), session)
        setting.answers("first", Answer("First."))
        models = FallbackModelClient(
            dict.fromkeys(ModelRole, (gone, setting.first)), setting.clock, setting.named, backoff=no_backoff
        )

        trying = await models.respond(ASKED)
        skipping = await models.respond(ASKED)
        setting.clock.seconds = 61
        again = await models.respond(ASKED)

    assert trying.warnings == again.warnings == ("Model local:gone: 127.0.0.1:9 can't be reached.",)
    assert skipping.warnings == ("Model local:gone is skipped for a while because it did not answer recently.",)


async def test_model_that_timed_out_is_tried_if_it_is_the_only_one(setting: Setting) -> None:
    setting.rules.append(Rule(Answer(hold="never"), When(last_contains="Wait.")))
    setting.answers("first", Answer("First."))
    models = setting.models()
    with pytest.raises(LLMTimeout):
        await models.respond(replace(ASKED, messages=(Message("user", "Wait."),), timeout=0.1))

    reply = await models.respond(ASKED)

    assert reply.content == "First."


async def test_broken_stream_restarts_on_the_fallback(setting: Setting) -> None:
    setting.answers("first", Answer("One two three.", hold="never", hold_after=2))
    setting.answers("second", Answer("Hello there."))

    models = setting.models(setting.second)
    items = [item async for item in models.stream_respond(replace(ASKED, timeout=3))]

    assert items[:-1] == [
        TextDelta("One "), TextDelta("two "), TextDelta("", restart=True), TextDelta("Hello "), TextDelta("there."),
    ]  # fmt: skip
    assert isinstance(items[-1], ModelReply)
    assert (items[-1].content, len(items[-1].warnings)) == ("Hello there.", 1)


async def test_stream_without_text_falls_back_without_a_restart(setting: Setting) -> None:
    setting.answers("first", BUSY, nth=1)
    setting.answers("first", Answer("Hello."))

    items = [item async for item in setting.models().stream_respond(ASKED)]

    assert items[0] == TextDelta("Hello.")


async def test_stream_that_always_breaks_raises_its_error(setting: Setting) -> None:
    setting.answers("first", Answer("One two three.", cut_after=1))

    with pytest.raises(LLMConnectionError):
        [item async for item in setting.models().stream_respond(ASKED)]

    assert setting.asked() == ["first"] * 3


async def test_stream_can_be_closed_early(setting: Setting) -> None:
    setting.answers("first", Answer("One two three.", hold="never", hold_after=1))

    async with aclosing(setting.models().stream_respond(ASKED)) as items:
        first = await anext(items)

    assert first == TextDelta("One ")
    assert setting.asked() == ["first"]


def test_role_is_described_by_its_first_model(setting: Setting) -> None:
    models = setting.models(router=setting.second)

    assert models.describe(ModelRole.CODING) == "local:first"
    assert models.describe(ModelRole.ROUTER) == "local:second"


async def test_model_named_by_a_request_is_tried_before_those_of_its_role(setting: Setting) -> None:
    setting.answers("second", Answer("Hello."))

    reply = await setting.models().respond(replace(ASKED, model="local:second"))

    assert reply.model == "local:second"
    assert reply.warnings == ()


async def test_models_of_the_role_follow_if_the_named_model_fails(setting: Setting) -> None:
    setting.answers("second", Answer(status=400, body="no", content_type="text/plain"))
    setting.answers("first", Answer("Hello."))

    reply = await setting.models().respond(replace(ASKED, model="local:second"))

    assert setting.asked() == ["second", "first"]
    assert reply.model == "local:first"
    assert "local:second" in reply.warnings[0]
