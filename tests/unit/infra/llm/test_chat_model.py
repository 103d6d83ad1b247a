"""Usage of endpoints that report none, or a part of it."""

import pytest

from starling.core.llm import (
    Message,
    ModelReply,
    ModelRequest,
    ModelRole,
    ModelToolCall,
    ResponseSchema,
    TokenUsage,
    ToolSpec,
)
from starling.infra.llm.chat_model import with_usage

HELLO = ModelRequest(ModelRole.ROUTER, (Message("user", "x" * 400),))
TOOLS = ModelRequest(
    ModelRole.ROUTER,
    (Message("user", "x" * 400), Message("assistant", "", (ModelToolCall("1", "look", {}, "y" * 40),))),
    tools=(ToolSpec("look", "z" * 200, {"type": "object"}),),
    response=ResponseSchema("answer", {"type": "object"}),
)
CALLS = ModelReply("", tool_calls=(ModelToolCall("1", "look", {"at": "x" * 38}),), reasoning="x" * 40)


@pytest.mark.parametrize(
    ("request_", "reply", "usage"),
    [
        pytest.param(HELLO, ModelReply("x" * 81), TokenUsage(100, 21, estimated=True), id="nothing reported"),
        pytest.param(HELLO, ModelReply("é" * 40), TokenUsage(100, 20, estimated=True), id="signs of two bytes"),
        pytest.param(HELLO, ModelReply("x", usage=TokenUsage(9, 3)), TokenUsage(9, 3), id="all reported"),
        pytest.param(
            HELLO, ModelReply("x" * 80, usage=TokenUsage(9)), TokenUsage(9, 20, estimated=True), id="no output reported"
        ),
        pytest.param(HELLO, ModelReply("", usage=TokenUsage(9)), TokenUsage(9), id="an empty answer"),
        pytest.param(TOOLS, CALLS, TokenUsage(171, 23, estimated=True), id="tools and calls"),
    ],
)
def test_usage_that_an_endpoint_does_not_report_is_estimated(
    request_: ModelRequest, reply: ModelReply, usage: TokenUsage
) -> None:
    assert with_usage(reply, request_).usage == usage
