"""What is read of the requests of OpenAI's clients."""

from typing import Any

import pytest
from pydantic import ValidationError

from starling.app.openai.requests import ChatCompletionRequest, ResponseRequest, Sending
from starling.core.runs import INSTRUCTIONS_CHARS
from starling.infra.postgres.runs.acceptance import IdempotencyKey

SENDING = Sending(IdempotencyKey("k", "h"), None, retried=False)
HELLO = {"role": "user", "content": "hello"}


def faults(kind: type[ChatCompletionRequest] | type[ResponseRequest], **body: Any) -> list[tuple[int | str, ...]]:
    """Return where a body is refused."""
    with pytest.raises(ValidationError) as refused:
        kind.model_validate({"model": "starling", **body})
    return [fault["loc"] for fault in refused.value.errors()]


def test_reasoning_of_earlier_answers_is_skipped() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "x"}]}
    items = [
        HELLO,
        reasoning,
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": "thanks"},
        reasoning,
    ]

    asked = ResponseRequest.model_validate({"model": "starling", "input": items}).asked(SENDING, None)

    assert [message.text for message in [*asked.before, *asked.said]] == ["hello", "Hi.", "thanks"]


def test_instructions_and_developer_texts_are_read_together() -> None:
    items = [{"role": "developer", "content": "Be kind."}, HELLO]
    body = {"model": "starling", "instructions": "Be brief.", "input": items}

    assert ResponseRequest.model_validate(body).asked(SENDING, None).instructions == "Be brief.\n\nBe kind."
    chat = ChatCompletionRequest.model_validate({"model": "starling", "messages": items}).asked(SENDING)
    assert chat.instructions == "Be kind."


def test_instructions_that_are_too_long_together_are_refused_by_both() -> None:
    half = "x" * (INSTRUCTIONS_CHARS // 2)
    messages = [{"role": "developer", "content": half}, HELLO]

    assert faults(ChatCompletionRequest, messages=[messages[0], *messages]) == [("messages",)]
    assert faults(ResponseRequest, instructions=half, input=messages) == [("input",)]


def test_only_the_first_wrong_message_is_named() -> None:
    wrong = {"role": "user", "content": [{"type": "image_url"}]}

    assert faults(ChatCompletionRequest, messages=[HELLO, wrong, wrong]) == [("messages", 1, "content")]
    assert faults(ResponseRequest, input=[HELLO, wrong, wrong]) == [("input", 1, "content")]
    assert faults(ChatCompletionRequest, messages=[HELLO] * 3_001) == [("messages",)]
    assert faults(ResponseRequest, input=[{"type": "reasoning"}]) == [("input",)]
    assert faults(ResponseRequest, input=1) == [("input",)]
