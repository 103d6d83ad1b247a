"""Large and compressed answers: bounded by what they decode to, and read outside of the event loop."""

import json
from typing import Any

import pytest

from tests.integration.mcp_gateway.test_malformed_answers import TRANSPORTS, opened, structured
from tests.support.gateway_harness import GatewayHarness, call

ROWS = "b','.join([b'{\"n\":1,\"text\":\"' + b'x' * 80 + b'\"}'] * 50000)"  # 5 MB
LARGE = {"name": "act", **structured(f"b'{{\"rows\":[' + {ROWS} + b']}}'")}
COUNTED = {"type": "object", "properties": {"rows": {"items": {"properties": {"n": {"type": "integer"}}}}}}


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_large_structured_content_is_kept_as_text(harness: GatewayHarness, transport: str) -> None:
    async with opened(harness, [LARGE], transport) as (gateway, listing):
        outcome = await call(gateway, listing, "act")

    assert (outcome.status, outcome.truncated, outcome.data) == ("succeeded", True, None)
    assert outcome.text.startswith('x\n\n{"rows":[{"n":1,"text":"xxx')
    assert outcome.characters == 4_900_013


@pytest.mark.parametrize(
    ("schema", "status", "said"),
    [
        (COUNTED, "succeeded", "x\n\n"),
        ({"type": "object", "required": ["columns"]}, "failed", "result: 'columns' is a required property"),
    ],
)
async def test_large_structured_content_is_checked_against_the_output_schema(
    harness: GatewayHarness, schema: dict[str, Any], status: str, said: str
) -> None:
    async with opened(harness, [LARGE | {"outputSchema": schema}], "stdio") as (gateway, listing):
        outcome = await call(gateway, listing, "act")

    assert (outcome.status, said in outcome.text) == (status, True)


async def test_long_text_beside_little_structured_content_keeps_it(harness: GatewayHarness) -> None:
    raw = '{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"LONG"}],"structuredContent":{"n":4}}}'
    row = {"name": "act", "raw": raw.replace("LONG", "word " * 100_000)}
    async with opened(harness, [row], "stdio") as (gateway, listing):
        outcome = await call(gateway, listing, "act")

    assert (outcome.status, outcome.data) == ("succeeded", {"n": 4})
    assert outcome.text.startswith("word word")


async def test_large_list_of_tools_is_read(harness: GatewayHarness) -> None:
    rows = [{"name": f"act{n}", "raw": "", "description": "x" * 1_000} for n in range(600)]
    async with opened(harness, rows, "stdio") as (_, listing):
        assert len(listing.tools) == 601


BOMB = structured("b'{\"a\":\"' + b'0' * 300 * 2**20 + b'\"}'")


@pytest.mark.parametrize("transport", ["http", "events"])
async def test_compressed_answer_is_bounded_by_what_it_decodes_to(harness: GatewayHarness, transport: str) -> None:
    small = {"name": "small", "gzip": True, **structured("b'{\"n\":1}'")}
    async with opened(harness, [{"name": "bomb", "gzip": True, **BOMB}, small], transport) as (gateway, listing):
        bomb = await call(gateway, listing, "bomb", seconds=60)
        fine = await call(gateway, listing, "small")

    assert (bomb.code, "longer than 16 MiB" in bomb.text) == ("invalid_result", True)
    assert (fine.status, json.loads(json.dumps(fine.data))) == ("succeeded", {"n": 1})


@pytest.mark.parametrize("transport", ["http", "events"])
async def test_encoding_that_was_not_asked_for_is_refused(harness: GatewayHarness, transport: str) -> None:
    row = {"name": "act", "encoding": "br", **structured("b'{}'")}
    async with opened(harness, [row], transport) as (gateway, listing):
        outcome = await call(gateway, listing, "act")

    assert "its content encoding 'br' was not asked for" in outcome.text
