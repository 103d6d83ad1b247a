"""What a request's hash depends on, and that answers come back from the journal as they went in."""

import json
from dataclasses import replace
from typing import Any, cast

import pytest

from brain.durability.journal import dump_reply, load_reply, request_hash, storable_reply
from brain.planning.decision import DECISION, OPEN_DECISION, VERDICT
from starling.core.llm import (
    Message,
    ModelReply,
    ModelRequest,
    ModelRole,
    ModelToolCall,
    ResponseSchema,
    ReturnedReasoning,
    TokenUsage,
    ToolSpec,
)

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


LOOK = ModelToolCall("call_0", "look", {"thing": "disk"}, '{"thing": "disk"}')
LOOP = (
    Message("system", "Be brief."),
    Message("user", "Hi."),
    Message("assistant", "", (LOOK,)),
    Message("tool", "fine", tool_call_id="call_0"),
)
SMALL = ToolSpec("look", "Looks.", {"type": "object", "properties": {"thing": {"type": "string"}}})
LARGE = ToolSpec("count", "Counts.", {"type": "object", "properties": {"n": {"type": "integer", "maximum": 2**70}}})


@pytest.mark.parametrize(
    ("request_", "recorded"),
    [
        (
            ModelRequest(ModelRole.ROUTER, LOOP, (SMALL,), ResponseSchema("open", {"type": "object"}), 0.3),
            "29ef9142e370e4a92fbfc2cc4d16030a2f78ece23236b19a19a6e40ab83e55bd",
        ),
        (
            ModelRequest(ModelRole.ROUTER, LOOP, (LARGE,), model="local:small"),
            "113f314da87105fb7e1f7b51294e483578734dba3b04c2ab907f99908e71cc9a",
        ),
    ],
    ids=["usual", "integers of more than 64 bits"],
)
def test_hash_is_the_one_that_the_first_version_recorded(request_: ModelRequest, recorded: str) -> None:
    returned = ReturnedReasoning("I look first.", "reasoning_content", "local:small")
    messages = tuple(replace(message, reasoning=returned) if message.tool_calls else message for message in LOOP)

    assert request_hash(request_) == recorded
    assert request_hash(replace(request_, messages=messages, tool_names={"look": "look"})) == recorded


@pytest.mark.parametrize("schema", [DECISION, OPEN_DECISION, VERDICT], ids=["decision", "open decision", "verdict"])
def test_schemas_ask_for_members_that_have_defaults(schema: ResponseSchema) -> None:
    optional = {"question", "options"}  # recorded requests have them so
    properties = cast("dict[str, dict[str, Any]]", schema.schema["properties"])

    assert schema.schema["required"] == [name for name in properties if name not in optional]
    assert not any("default" in member for name, member in properties.items() if name not in optional)


def test_how_long_it_may_take_does_not() -> None:
    assert request_hash(replace(ASKED, timeout=1.0)) == request_hash(ASKED)


@pytest.mark.parametrize("reasoning", [("", ""), ("I look first.", "reasoning_content")])
def test_a_reply_comes_back_as_it_was(reasoning: tuple[str, str]) -> None:
    reply = replace(REPLY, reasoning=reasoning[0], reasoning_field=reasoning[1])

    assert load_reply(json.loads(json.dumps(dump_reply(reply)))) == reply
    assert storable_reply(reply) == reply
    assert ("reasoning" in dump_reply(reply)) == bool(reasoning[0])


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
