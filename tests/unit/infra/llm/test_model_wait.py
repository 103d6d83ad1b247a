"""How long models that fail for now are waited for, by a clock that only waits move."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from starling.core.clock import Deadline
from starling.core.errors import LLMConnectionError, LLMServerError
from starling.core.llm import Message, ModelRequest, ModelRole, ModelWait
from starling.core.settings.schema import Limits
from starling.infra.llm.chat_model import Endpoint
from starling.infra.llm.client import FallbackModelClient
from starling.infra.llm.openai_endpoint import EndpointModel, open_session
from tests.support.model_script import Answer, Body
from tests.support.model_server import ModelServer
from tests.support.set_clock import SetClock

BUSY, QUOTA = Answer(status=500, body="busy"), '{"error": {"message": "pay", "code": "insufficient_quota"}}'
FINE = Answer("Hello.")


@dataclass
class Waits:
    """A client of the models `first` and `second`; answers are used up, the last one stays.

    Waits last as long as the settings say by default.
    """

    answers: dict[str, list[Answer]]
    clock: SetClock = field(default_factory=SetClock)
    asked: list[str] = field(default_factory=list[str])
    warned: list[str] = field(default_factory=list[str])
    seconds: float = field(default_factory=lambda: Limits().model_wait_seconds)
    call_seconds: float = 20
    run_seconds: float = 300
    clients: dict[str, FallbackModelClient] = field(default_factory=dict[str, FallbackModelClient])

    async def respond(self, body: Body) -> Answer:
        self.asked.append(body["model"])
        left = self.answers[body["model"]]
        return left.pop(0) if len(left) > 1 else left[0]

    async def sleep(self, seconds: float) -> None:
        self.clock.seconds += seconds

    def request(self) -> ModelRequest:
        deadline = Deadline(self.clock, self.run_seconds)
        wait = ModelWait(self.seconds, deadline, {}, self.warned.append, self.sleep)
        return ModelRequest(ModelRole.ROUTER, (Message("user", "Say hello."),), timeout=self.call_seconds, wait=wait)


@pytest.fixture
async def waits() -> AsyncGenerator[tuple[Waits, FallbackModelClient]]:
    setting = Waits({"first": [FINE], "second": [FINE]})
    async with ModelServer(setting.respond) as server, open_session(trust_env=False) as session:
        models = [EndpointModel(f"{name}:{name}", name, Endpoint(server.url), session) for name in setting.answers]
        gone = EndpointModel("gone:gone", "gone", Endpoint("http://127.0.0.1:9/v1"), session)
        named = {"both": models, "first": models[:1], "gone": [gone]}
        clients = {
            name: FallbackModelClient(dict.fromkeys(ModelRole, chain), setting.clock, lambda _: gone, lambda _: 2.0)
            for name, chain in named.items()
        }
        setting.clients = clients
        yield setting, clients["first"]


async def test_failing_model_is_asked_again_until_it_answers(waits: tuple[Waits, FallbackModelClient]) -> None:
    setting, client = waits
    setting.answers["first"] = [BUSY] * 6 + [FINE]

    reply = await client.respond(setting.request())

    assert (reply.content, len(setting.asked), len(setting.warned)) == ("Hello.", 7, 4)
    assert setting.warned[0].endswith("500: busy. Model first:first is asked again in 2 s, at 00:00:06 UTC.")


async def test_rate_limit_that_names_no_time_is_waited_for_with_backoff(
    waits: tuple[Waits, FallbackModelClient],
) -> None:
    setting, client = waits
    setting.answers["first"] = [Answer(status=429, body="slow down")] * 4 + [FINE]

    reply = await client.respond(setting.request())

    assert (reply.content, len(setting.asked), len(setting.warned)) == ("Hello.", 5, 2)
    assert setting.warned[0].endswith("429: slow down. Model first:first is asked again in 2 s, at 00:00:06 UTC.")


async def test_model_that_does_not_answer_in_time_is_asked_again(waits: tuple[Waits, FallbackModelClient]) -> None:
    setting, client = waits
    setting.answers["first"], setting.call_seconds = [Answer(hold="for ever"), Answer(hold="for ever"), FINE], 0.2

    reply = await client.respond(setting.request())

    assert reply.content == "Hello."
    assert len(setting.asked) >= 3  # more where a machine is so slow that the last answer comes too late, too
    assert len(setting.warned) >= 2
    assert setting.warned[0].endswith("Model first:first is asked again in 2 s, at 00:00:02 UTC.")


async def test_time_of_the_wait_is_over(waits: tuple[Waits, FallbackModelClient]) -> None:
    setting, client = waits
    setting.answers["first"] = [BUSY]

    with pytest.raises(LLMServerError, match=r"limits.model_wait_seconds"):
        await client.respond(setting.request())

    assert 58 <= setting.clock.seconds <= 66


async def test_time_of_the_run_ends_before_the_wait(waits: tuple[Waits, FallbackModelClient]) -> None:
    setting, client = waits
    setting.answers["first"], setting.run_seconds = [BUSY], 10

    with pytest.raises(LLMServerError, match="the run's time"):
        await client.respond(setting.request())

    assert setting.clock.seconds <= 10


@pytest.mark.parametrize("answer", [Answer(status=429, body=QUOTA), Answer(status=401, body="{}")])
async def test_refusals_are_not_waited_for(waits: tuple[Waits, FallbackModelClient], answer: Answer) -> None:
    setting, client = waits
    setting.answers["first"] = [answer]

    with pytest.raises(LLMServerError):
        await client.respond(setting.request())

    assert (len(setting.asked), setting.warned) == (1, [])


async def test_retry_after_that_is_longer_than_the_wait_fails_at_once(waits: tuple[Waits, FallbackModelClient]) -> None:
    setting, client = waits
    setting.answers["first"] = [Answer(status=429, headers={"Retry-After": "300"}, body="{}")]

    with pytest.raises(LLMServerError, match="could be asked again in 302 s, at 00:05:02 UTC"):
        await client.respond(setting.request())

    assert (len(setting.asked), setting.clock.seconds) == (1, 0)


async def test_date_in_retry_after_is_waited_for(waits: tuple[Waits, FallbackModelClient]) -> None:
    setting, client = waits
    headers = {"Retry-After": format_datetime(datetime.now(UTC) + timedelta(seconds=50), usegmt=True)}
    setting.answers["first"] = [Answer(status=503, headers=headers, body="{}"), FINE]
    request = replace(setting.request(), timeout=10)

    reply = await client.respond(request)

    assert (reply.content, len(setting.asked), len(setting.warned)) == ("Hello.", 2, 1)
    assert 30 < setting.clock.seconds <= 53


async def test_endpoint_that_answered_before_is_waited_for_while_it_refuses_connections() -> None:
    setting = Waits({"first": [FINE]})
    async with open_session(trust_env=False) as session:
        async with ModelServer(setting.respond) as server:
            model = EndpointModel("first:first", "first", Endpoint(server.url), session)
            chains = {role: [model] for role in ModelRole}
            client = FallbackModelClient(chains, setting.clock, lambda _: model, lambda _: 2.0)
            await client.respond(setting.request())

        with pytest.raises(LLMConnectionError, match=r"limits.model_wait_seconds"):
            await client.respond(setting.request())

    assert 58 <= setting.clock.seconds <= 66
    assert len(setting.warned) > 10


async def test_fallback_is_asked_before_any_wait(waits: tuple[Waits, FallbackModelClient]) -> None:
    setting, _ = waits
    setting.answers["first"] = [BUSY]

    reply = await setting.clients["both"].respond(setting.request())

    assert (reply.model, setting.warned) == ("second:second", [])


async def test_endpoint_that_never_answered_is_not_waited_for(waits: tuple[Waits, FallbackModelClient]) -> None:
    setting, _ = waits

    with pytest.raises(LLMConnectionError):
        await setting.clients["gone"].respond(setting.request())

    assert setting.warned == []


async def test_request_without_a_wait_fails_as_before(waits: tuple[Waits, FallbackModelClient]) -> None:
    setting, client = waits
    setting.answers["first"] = [BUSY]

    with pytest.raises(LLMServerError):
        await client.respond(replace(setting.request(), wait=None))
