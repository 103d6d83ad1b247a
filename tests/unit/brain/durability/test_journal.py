"""What a request's hash depends on, and that answers come back from the journal as they went in."""

import json
from dataclasses import replace
from typing import Any

import pytest

from brain.durability.journal import dump_reply, load_reply, request_hash, storable_reply
from brain.planning.decision import DECISION, VERDICT
from starling.core.llm import Message, ModelReply, ModelRequest, ModelRole, ModelToolCall, TokenUsage, ToolSpec

ASKED = ModelRequest(ModelRole.REASONING, (Message("system", "Be brief."), Message("user", "Hi.")), response=DECISION)
REPLY = ModelReply(
    "Hello.",
    (ModelToolCall("call", "look", {"thing": ["disk", 1, None]}, "{}"),),
    TokenUsage(3, 4),
    "a:b",
    "stop",
    ("w",),
)


@pytest.mark.parametrize(
    "change",
    [
        {"role": ModelRole.CODING},
        {"messages": (Message("system", "Be brief."), Message("user", "Ho."))},
        {"messages": (Message("system", "Be brief."), Message("assistant", "Hi."))},
        {"tools": (ToolSpec("look", "", {}),)},
        {"response": VERDICT},
        {"temperature": 0.5},
    ],
    ids=lambda change: next(iter(change)),
)
def test_all_that_a_model_sees_changes_the_hash(change: dict[str, Any]) -> None:
    assert request_hash(replace(ASKED, **change)) != request_hash(ASKED)


def test_how_long_it_may_take_does_not() -> None:
    assert request_hash(replace(ASKED, timeout=1.0)) == request_hash(ASKED)


def test_a_reply_comes_back_as_it_was() -> None:
    assert load_reply(json.loads(json.dumps(dump_reply(REPLY)))) == REPLY
    assert storable_reply(REPLY) == REPLY


def test_a_reply_is_used_as_it_can_be_stored() -> None:
    call = ModelToolCall("call", "look", {"thing\0": "a\0b", "many": 10**30})

    reply = storable_reply(ModelReply("a\0b", (call,)))

    assert reply.content == "a�b"
    assert reply.tool_calls[0].arguments == {"thing�": "a�b", "many": str(10**30)}


@pytest.mark.parametrize(
    ("said", "read"),  # as Postgres gives it back
    [
        (-0.0, 0.0),
        (2.0, 2.0),
        (1e16, 10**16),
        (1.2345678901234568e17, 123456789012345680),
        (-(2.0**63), -9223372036854776000),
        (1e22, 10**22),
        (1e23, 10**23),
        (2**63 - 1, 2**63 - 1),
        (0.1, 0.1),
    ],
)
def test_numbers_are_the_same_before_and_after_a_crash(said: float, read: float) -> None:
    before = storable_reply(ModelReply("", (ModelToolCall("call", "look", {"deep": [{"n": said}]}),)))
    after = load_reply(dump_reply(ModelReply("", (ModelToolCall("call", "look", {"deep": [{"n": read}]}),))))

    assert repr(before) == repr(after)
