"""Prompts from Langfuse, by name and label."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from pydantic import SecretStr

from starling.core.errors import PromptSourceUnavailableError
from starling.core.prompts import OfferedPrompt, RefusedPrompt
from starling.core.settings.schema import Settings
from starling.infra.prompts import langfuse
from starling.infra.prompts.langfuse import LangfusePrompts
from starling.infra.tracing.destination import langfuse_of
from tests.support.langfuse_server import PUBLIC_KEY, SECRET_KEY, LangfuseServer

SYSTEM, USER = {"role": "system", "content": "Plan."}, {"role": "user", "content": "<a>{{b}}</a>"}


@pytest.fixture
async def server() -> AsyncGenerator[LangfuseServer]:
    async with LangfuseServer() as server:
        yield server


def prompts(server: LangfuseServer, *, secret: str = SECRET_KEY, **names: str) -> LangfusePrompts:
    address, key = server.url, SecretStr(secret)
    source = langfuse_of(Settings(langfuse_host=address, langfuse_public_key=PUBLIC_KEY, langfuse_secret_key=key))
    assert source is not None
    return LangfusePrompts(source, "production", names or {"supervisor": "agents/orchestrator"})


async def test_version_with_the_label_is_offered_with_its_place(server: LangfuseServer) -> None:
    server.publish("agents/orchestrator", "Old.", "production")
    server.publish("agents/orchestrator", "Plan {{task}}.", "production")
    server.publish("agents/orchestrator", "Newer.", "staging")

    offers = await prompts(server, supervisor="agents/orchestrator", qa="nothing").offers()

    place = ("langfuse", 2, "production", "agents/orchestrator")
    assert offers == {"supervisor": OfferedPrompt("Plan {{task}}.", *place)}
    assert sorted(server.requested) == ["agents/orchestrator", "nothing"]


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([SYSTEM], "Plan."),
        ([SYSTEM, USER], "Plan.\n---\n<a>{{b}}</a>"),
        ([SYSTEM, USER, {"role": "assistant", "content": "Yes."}], None),
        ([USER], None),
        ([SYSTEM, {"type": "placeholder", "name": "history"}], None),
        ([SYSTEM, {"role": "user", "content": "<a>\n---\n</a>"}], None),
    ],
)
async def test_chat_of_a_system_and_a_user_message_is_one_text_and_any_other_is_refused(
    server: LangfuseServer, messages: Sequence[dict[str, Any]], text: str | None
) -> None:
    server.publish("agents/orchestrator", messages, "production")

    offer = (await prompts(server).offers())["supervisor"]

    if text is None:
        assert isinstance(offer, RefusedPrompt)
        assert "`agents/orchestrator`, version 1, is a chat" in offer.reason
    else:
        assert isinstance(offer, OfferedPrompt)
        assert offer.text == text


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((500, "<h1>Oops</h1>"), "it answered with HTTP 500"),
        ((404, "<h1>Not here</h1>"), "it answered with HTTP 404"),
        ((401, "<h1>Log in</h1>"), r"it refuses the keys \(HTTP 401\)"),
        ((200, "<h1>Welcome</h1>"), "its answer is none of Langfuse's API"),
        ((200, '{"type": "text", "prompt": 7}'), "its answer is none of Langfuse's API"),
        ((200, "[]"), "its answer is none of Langfuse's API"),
        ((429, '{"message": "slow down"}'), "it answered with HTTP 429"),
        (None, "it didn't answer within 0.3 s"),
    ],
)
async def test_unusable_answer_is_one_error_that_names_it(
    server: LangfuseServer, monkeypatch: pytest.MonkeyPatch, answer: tuple[int, str] | None, told: str
) -> None:
    if answer is None:
        monkeypatch.setattr(langfuse, "_ALL_SECONDS", 0.3)
    server.answer, server.silent = answer, answer is None

    with pytest.raises(PromptSourceUnavailableError, match=told):
        await prompts(server).offers()


async def test_silence_of_one_request_is_told_with_its_own_time_limit(
    server: LangfuseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(langfuse, "_ONE_SECONDS", 0.2)
    server.silent = True

    with pytest.raises(PromptSourceUnavailableError, match=r"it didn't answer within 0\.2 s"):
        await prompts(server).offers()


async def test_refused_keys_and_an_unreachable_host_are_errors_that_name_them(server: LangfuseServer) -> None:
    with pytest.raises(PromptSourceUnavailableError, match="refuses the keys"):
        await prompts(server, secret="wrong").offers()

    gone = prompts(server)
    await server.stop()

    with pytest.raises(PromptSourceUnavailableError, match="can't be reached"):
        await gone.offers()
