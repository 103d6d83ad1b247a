"""Tools of real servers with unusual schemas: offered, and called with whatever fits their schemas."""

import json
from pathlib import Path
from typing import Any, cast

from brain.agents.tools.toolbox import Toolbox
from starling.core.clock import Deadline, SystemClock
from starling.core.ids import new_id
from starling.core.tools import ToolCall
from tests.support.gateway_harness import SERVERS, GatewayHarness, call, python
from tests.support.schema_values import values_for

DATA = Path(__file__).parents[2] / "data/mcp_listings/weird_schemas.jsonl"
TOOLS: list[dict[str, Any]] = [json.loads(line)["tool"] for line in DATA.read_text("utf-8").splitlines()]
NO_SCHEMA = 'its inputSchema is not a valid JSON schema: "object" is not of types "boolean", "object"'
LEFT_OUT = [
    ("get_rubygem_info", NO_SCHEMA),
    ("get_gem_versions", NO_SCHEMA),
    ("get_owner_gems", NO_SCHEMA),
    ("search_google_scholar_advanced", "its name is listed twice"),
    ("search_google_scholar_advanced", "its name is listed twice"),
]
EXAMPLES = 3  # of the arguments of each tool


def is_sendable(value: Any) -> bool:
    """Whether a value has neither NUL nor half of a surrogate pair, and its numbers fit 64 bits or a double."""
    match value:
        case str():
            return not any(one == "\0" or "\ud800" <= one <= "\udfff" for one in value)
        case int():
            return -(2**63) <= value < 2**63 or (abs(value) < 10**308 and float(value) == value)
        case dict():
            return all(is_sendable(part) for item in cast("dict[str, Any]", value).items() for part in item)
        case list():
            return all(map(is_sendable, cast("list[Any]", value)))
        case _:
            return True


async def test_arguments_that_fit_unusual_schemas_reach_the_server_unchanged(
    harness: GatewayHarness, tmp_path: Path
) -> None:
    offered = tmp_path / "tools.json"
    offered.write_text(json.dumps(TOOLS))
    config = python(SERVERS / "offering.py", str(offered), str(harness.record), effect="read")
    sent: list[Any] = []
    async with harness.listing(config) as (gateway, listing):
        for tool in listing.tools:
            for arguments in values_for(dict(tool.input_schema), EXAMPLES):
                call = ToolCall(new_id(), "run", "t1", tool, arguments)
                outcome = await gateway.call(call, Deadline(SystemClock(), 20))
                if is_sendable(arguments):
                    assert (outcome.status, outcome.text) == ("succeeded", "done"), (tool.name, arguments)
                    sent.append([tool.own_name or tool.name, arguments])
                else:
                    assert (outcome.code, "can't be sent unchanged" in outcome.text) == ("invalid_arguments", True)

    received = [json.loads(line) for line in harness.recorded() if not line.startswith('"')]
    assert list(map(json.dumps, received)) == list(map(json.dumps, sent))
    assert len({name for name, _ in sent}) == len(TOOLS) - len(LEFT_OUT)
    left_out = dict(LEFT_OUT)
    assert listing.error == f"Left out: {'; '.join(f'{name!r}: {why}' for name, why in left_out.items())}."


async def test_tool_with_a_schema_of_draft_4_is_kept_if_it_says_so_and_else_left_out_alone(
    harness: GatewayHarness, tmp_path: Path
) -> None:
    size = {"type": "integer", "minimum": 0, "exclusiveMinimum": True}
    old = {"type": "object", "properties": {"size": size}}
    schemas = {"says_so": {"$schema": "http://json-schema.org/draft-04/schema#", **old}, "silent": old, "new": {}}
    offered = tmp_path / "tools.json"
    offered.write_text(json.dumps([{"name": name, "inputSchema": schema} for name, schema in schemas.items()]))
    config = python(SERVERS / "offering.py", str(offered), str(harness.record), effect="read")
    async with harness.listing(config) as (gateway, listing):
        outcomes = [await call(gateway, listing, "says_so", size=size) for size in (0, 1)]
    shown = {spec.name: spec.parameters for spec in Toolbox.of(listing.tools).specs}

    assert {tool.name for tool in listing.tools} == {"says_so", "new"}
    assert "'silent': its inputSchema is not a valid JSON schema: true is not of type" in listing.error
    assert [outcome.status for outcome in outcomes] == ["failed", "succeeded"]
    assert shown["says_so"]["properties"] == {"size": {"type": "integer", "exclusiveMinimum": 0}}
