"""Any request gets a deterministic answer of the requested form."""

from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from brain.planning.decision import DECISION, VERDICT, Decision, Verdict
from starling.core.json import JsonObject
from starling.core.llm import Message, ModelRequest, ModelRole, ResponseSchema, ToolSpec
from tests.support.offline_requests import answer, compose_answer, decide, review

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
SCHEMA_WORDS = st.sampled_from(
    ["type", "properties", "required", "items", "enum", "$ref", "anyOf", "minimum", "a", "path"]
)
SCHEMAS = st.recursive(
    st.sampled_from(["object", "array", "string", "integer", "#/properties/a", None, 3]),
    lambda inner: st.dictionaries(SCHEMA_WORDS, inner | st.lists(inner, max_size=2), max_size=5),
    max_leaves=12,
)
PIECES = st.sampled_from(
    [
        "<agent name='a'>",
        "</agent>",
        "<task id='t1' status='failed'>",
        '<call name="x">',
        "</call>",
        "<arguments>",
        "</arguments>",
        "time",
        " in ",
        "Lima",
        " and ",
        "list",
        "<task>",
        "</task>",
        "&lt;",
        '"',
        "'",
        "/a/b",
        "3",
        "{",
        "}",
        ", ",
        "?",
        "利马",
        "\n",
    ]
)
TEXTS = st.text(max_size=60) | st.lists(PIECES, max_size=14).map("".join)
TAGS = (
    "task",
    "user_request",
    "agents",
    "current_plan",
    "tool_calls",
    "output",
    "results",
    "degraded",
    "state_context",
)


def _mapping(value: object) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, dict) else {}


@settings(max_examples=75, deadline=None)
@example(tag="current_plan", inner="<task></task>", schemas=[], kind=0)
@given(tag=st.sampled_from(TAGS), inner=TEXTS, schemas=st.lists(SCHEMAS, max_size=2), kind=st.integers(0, 3))
def test_any_request_gets_an_answer_of_the_requested_form(tag: str, inner: str, schemas: list[Any], kind: int) -> None:
    messages = (Message("user", f"<{tag}>{inner}</{tag}><task>{inner}</task><output>{inner}</output>"),)
    tools = tuple(ToolSpec(f"tool{at}", inner, _mapping(schema)) for at, schema in enumerate(schemas))
    response = (DECISION, VERDICT, ResponseSchema("other", {}), None)[kind]

    request = ModelRequest(ModelRole.ROUTER, messages, tools, response)
    reply = answer(request)

    assert reply == answer(request)
    if response is DECISION:
        Decision.model_validate_json(reply.content)
    elif response is VERDICT:
        Verdict.model_validate_json(reply.content)


@settings(max_examples=60, deadline=None)
@given(text=TEXTS, data=JSON)
def test_any_text_in_the_real_prompts_gets_an_answer(text: str, data: object) -> None:
    decide(text)
    review(text, [("t", {"a": [data]}, text, "succeeded")])
    assert compose_answer([text], [(text, text)])


@pytest.mark.parametrize(
    "piece", ["a.", "a", '"', "/", "(", "Aa ", "a-", "a@", "*/", "1,", "a/", "{", " and", "in A", "time in Lima and "]
)
def test_huge_requests_are_answered_quickly(piece: str) -> None:
    text = (piece * 40_000)[:40_000]

    decide(text)

    assert review(text, [("t", {"a": text}, text, "succeeded")]).status in ("APPROVED", "REJECTED", "FIXED")
