"""Which request an unreadable text answers."""

import asyncio
import json
import sys
from asyncio.subprocess import Process
from signal import SIGKILL
from typing import Any

import pytest
from mcp.types import JSONRPCMessage

from mcp_gateway.sessions.large_messages import LargeAnswer, LargeMessageReader, LargeResult
from mcp_gateway.sessions.messages import PendingRequests, UnreadableError, looks_like_message


def pending(*numbers: int) -> PendingRequests:
    found = PendingRequests()
    for number in numbers:
        found.sent(JSONRPCMessage.model_validate({"jsonrpc": "2.0", "id": number, "method": "tools/call"}))
    return found


@pytest.mark.parametrize(
    ("raw", "request_id"),
    [
        pytest.param(b'{"jsonrpc":"2.0","id":7,"result":{', 7, id="first"),
        pytest.param(b'{"result":{"a":[' + b"[" * 9_000 + b'], "id": 3}, "jsonrpc":"2.0", "id": 7}', 7, id="last"),
        pytest.param(b'{"result":{"id":3},"id":7,', 7, id="not one inside of the result"),
        pytest.param(b'{"text":"{\\"id\\":3,","id":7,', 7, id="not one inside of a text"),
        pytest.param(b'[{"jsonrpc":"2.0","id":7,"result":{}}]', 7, id="in a list"),
        pytest.param(b'{"jsonrpc":"2.0","id":"7","result":', 7, id="as text"),
        pytest.param(b'{"jsonrpc":"2.0","id":7.0,"result":', 7, id="as a number with a point"),
        pytest.param(b'{"jsonrpc":"2.0","id":12345,"result":', None, id="of no request"),
        pytest.param(b'{"jsonrpc":"2.0","result":', None, id="none, with two requests"),
    ],
)
def test_unreadable_text_answers_the_request_whose_id_it_has(raw: bytes, request_id: int | None) -> None:
    assert pending(3, 7).answered_by(raw) == request_id


def test_unreadable_text_without_an_id_answers_the_only_request() -> None:
    assert pending(3).answered_by(b'{"jsonrpc":"2.0","result":') == 3


def test_answered_request_gets_no_further_answer() -> None:
    found = pending(3, 7)
    found.answered(JSONRPCMessage.model_validate({"jsonrpc": "2.0", "id": "7", "result": {}}))

    assert found.answered_by(b'{"jsonrpc":"2.0","id":7,"result":') is None


def test_request_that_was_sent_again_after_a_redirect_is_answered_once() -> None:
    found = pending(7, 7)
    found.answered(JSONRPCMessage.model_validate({"jsonrpc": "2.0", "id": 7, "result": {}}))

    assert not found.has(7)


@pytest.mark.parametrize("line", [b"loading 3", b"1e309", b"{}", b'{"level":"info","message":"up"}', b"\xff", b"[]"])
def test_line_of_a_log_is_no_message(line: bytes) -> None:
    assert not looks_like_message(line)


async def test_large_resource_is_read_as_what_it_is() -> None:
    content = {"uri": "book://1", "text": "word " * 100_000}
    raw = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"contents": [content]}}).encode()

    answer = await LargeMessageReader().read(raw)

    assert isinstance(answer.result, LargeResult)
    assert answer.result.text == content["text"]


async def test_large_result_with_more_values_than_the_loop_can_read_at_once_is_unreadable() -> None:
    few, many = (b'{"jsonrpc":"2.0","id":1,"result":{"x":[' + b"[]," * count + b"[]]}}" for count in (1_000, 300_000))

    answer = await LargeMessageReader().read(few)
    with pytest.raises(UnreadableError, match="more than 300,000 values"):
        await LargeMessageReader().read(many)

    assert answer == LargeAnswer(1, {"x": [[]] * 1_001})


async def test_large_message_that_cannot_be_handed_to_a_process_is_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/missing")

    with pytest.raises(UnreadableError, match="No such file"):
        await LargeMessageReader().read(b'{"jsonrpc":"2.0","id":1,"result":{}}')


async def test_helper_process_is_killed_when_its_reader_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    started, start = asyncio.get_running_loop().create_future(), asyncio.create_subprocess_exec

    async def observed(*command: Any, **options: Any) -> Process:
        started.set_result(await start(*command, **options))
        return started.result()

    monkeypatch.setattr(asyncio, "create_subprocess_exec", observed)
    raw = b'{"jsonrpc":"2.0","id":1,"result":{"x":[' + b"[]," * 2_000_000 + b"[]]}}"
    reading = asyncio.create_task(LargeMessageReader().read(raw))
    process = await started

    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)

    assert await process.wait() == -SIGKILL
