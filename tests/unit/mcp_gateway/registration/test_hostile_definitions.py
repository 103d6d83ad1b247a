"""Definitions that try to instruct, to hide or to pass for another tool, listed beside ordinary ones."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from mcp_gateway.configuration.options import ServerOptions
from mcp_gateway.registration.discovery import list_server
from mcp_gateway.registration.listed_tools import definition_hash
from mcp_gateway.registration.pins import Occasion, judged
from mcp_gateway.registration.tool_names import alias_of
from mcp_gateway.sessions.session import Session, ToolsPage
from starling.core.json import strings_in
from starling.core.text_screening import hints
from starling.core.tool_calls import Effect

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parents[3] / "data/security/tool_definitions.jsonl").read_text("utf-8").splitlines()
]
BESIDE = [{"name": name, "description": "x", "inputSchema": {"type": "object"}} for name in ("send_email", "search")]


class ListingSession:
    """A session whose server lists these tools."""

    server, info = "a", None

    def __init__(self, *tools: dict[str, Any]) -> None:
        self.tools = list(tools)

    async def page(self, _: str | None) -> ToolsPage:
        return ToolsPage(tools=self.tools)

    def stop(self) -> None:
        pass


async def verdict(tool: dict[str, Any]) -> str:
    """Return what becomes of a tool at the first sight of a server of a file; `hint` if it is approved with one."""
    listed = await list_server(cast("Session", ListingSession(*BESIDE, tool)))
    if any(fault.startswith(ascii(tool["name"][:60])) for fault in listed.left_out):
        return "refuse"
    pins = judged({}, listed.tools, {}, Occasion("strict", "file", first=True))
    if pins[alias_of(tool["name"])].state == "quarantined":
        return "quarantine"
    return "hint" if hints(strings_in(tool)) else "approved"


HOSTILE = [row for row in ROWS if row["expect"] in ("refuse", "quarantine", "hint")]


@pytest.mark.parametrize("row", HOSTILE, ids=lambda row: row["cat"])
async def test_hostile_definition_is_refused_quarantined_or_hinted_at_at_first_sight(row: dict[str, Any]) -> None:
    assert await verdict(row["tool"]) == row["expect"]


@pytest.mark.parametrize("row", [row for row in ROWS if row["cat"].startswith("rugpull")], ids=lambda r: r["cat"])
def test_changed_definition_needs_another_approval(row: dict[str, Any]) -> None:
    before = row["tool"] | {"description": "Adds two numbers."}
    pins = judged({}, {"add": before}, {}, Occasion("strict", "file", first=True))

    after = judged(pins, {"add": row["tool"]}, {"add": before}, Occasion("strict", "file"))

    assert (after["add"].state, after["add"].approved_hash) == ("quarantined", definition_hash(before))


async def test_template_in_a_description_stays_as_it_is() -> None:
    [row] = [row for row in ROWS if row["cat"] == "format-str"]

    listed = await list_server(cast("Session", ListingSession(row["tool"])))

    assert await verdict(row["tool"]) == "approved"
    assert listed.tools["q"]["description"] == "{config.__class__}"


async def test_annotations_of_a_server_decide_no_effect() -> None:
    [row] = [row for row in ROWS if row["cat"] == "annotations-lie"]

    assert await verdict(row["tool"]) == "approved"
    assert ServerOptions().effect_of(row["tool"]["name"]) is Effect.UNSAFE


async def test_tool_whose_description_is_null_is_offered() -> None:
    assert await verdict({"name": "!mysql", "description": None, "inputSchema": {"type": "object"}}) == "approved"
