"""What a server can hide in a definition or pass for, and what of it reaches a prompt."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import mcp.types as wire
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from bench.labelled_texts import public_server_rows
from mcp_gateway.configuration.servers import ServerConfig
from mcp_gateway.registration.discovery import list_server
from mcp_gateway.registration.pins import Occasion, judged
from mcp_gateway.sessions.session import Session, ToolsPage
from starling.core.errors import ConfigurationError
from tests.support.gateway_harness import SERVERS, GatewayHarness, named, python

DATA = Path(__file__).parents[2] / "data"
# Where a text of a definition may stand; it replaces the `$`.
PLACES: Mapping[str, dict[str, Any]] = {
    "description": {"description": "$"},
    "title": {"title": "$"},
    "annotation": {"annotations": {"title": "$"}},
    "parameter": {"inputSchema": {"type": "object", "properties": {"$": {"type": "string"}}}},
    "explained": {"inputSchema": {"type": "object", "properties": {"id": {"type": "string", "description": "$"}}}},
    "enum": {"inputSchema": {"type": "object", "properties": {"id": {"enum": ["one", "$"]}}}},
    "nested": {"inputSchema": {"type": "object", "properties": {"id": {"items": {"title": "$"}}}}},
    "result": {"outputSchema": {"type": "object", "properties": {"id": {"description": "$"}}}},
}
PLAIN: dict[str, Any] = {"name": "plain", "description": "Gets a row.", "inputSchema": {"type": "object"}}


def rows(file: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / file).read_text("utf-8").splitlines()]


TEXTS = rows("security/hidden_characters.jsonl")
HIDDEN, LEGITIMATE = ([row for row in TEXTS if row["hidden"] is hidden] for hidden in (True, False))


def with_text(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a definition for each place, named by the place, with the text of a row there."""
    text = json.dumps(row["text"])[1:-1]
    return [
        PLAIN | {"name": f"{place}_{row['class']}", **json.loads(json.dumps(part).replace("$", text))}
        for place, part in PLACES.items()
    ]


@pytest.fixture
def harness(engine: AsyncEngine, tmp_path: Path) -> GatewayHarness:
    return GatewayHarness(engine, tmp_path)


def offering(folder: Path, *tools: Mapping[str, Any], name: str = "a", instructions: str = "") -> ServerConfig:
    file = folder / f"{name}.json"
    file.write_text(json.dumps({"tools": tools, "instructions": instructions}))
    return python(SERVERS / "offering.py", str(file), str(folder / "record"), effect="read")


async def in_use(harness: GatewayHarness, tools: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return which tools of a server of a file may be called after its first listing."""
    listing = await harness.listed(offering(harness.folder, PLAIN, *tools))
    assert listing.state == "ready", listing.error
    assert "".join([listing.error, *listing.quarantined.values()]).isprintable()  # who reads it sees all of it
    return {tool.name for tool in listing.tools} - {"plain"}


async def test_definition_with_hidden_characters_anywhere_is_not_in_use(harness: GatewayHarness) -> None:
    assert await in_use(harness, [tool for row in HIDDEN for tool in with_text(row)]) == set()


async def test_name_with_hidden_characters_is_not_in_use(harness: GatewayHarness) -> None:
    names = [f"{row['class']}_{row['text'].replace(' ', '_')}" for row in HIDDEN]

    assert await in_use(harness, [PLAIN | {"name": name} for name in names]) == set()


async def test_definition_with_joiners_and_selectors_where_they_belong_is_in_use(harness: GatewayHarness) -> None:
    offered = [tool for row in LEGITIMATE for tool in with_text(row)]

    assert {tool["name"] for tool in offered} - await in_use(harness, offered) == set()


async def test_honest_tool_is_not_quarantined_for_its_words(harness: GatewayHarness) -> None:
    honest = [PLAIN | row for row in rows("security/honest_tools.jsonl")]

    assert {tool["name"] for tool in honest} - await in_use(harness, honest) == set()


async def test_instructions_with_hidden_characters_are_not_shown_and_reported(harness: GatewayHarness) -> None:
    """Each server gets a text of its own after its instructions."""
    said = {row["class"]: f"{row['text']} Marked." for row in (*HIDDEN[::8], *LEGITIMATE[::4])}
    hidden = {row["class"] for row in HIDDEN}
    servers = {name: offering(harness.folder, PLAIN, name=name, instructions=text) for name, text in said.items()}

    async with harness.gateway() as gateway:
        listings = await gateway.catalog.sync(servers)

    assert {one.name for one in listings if "Marked" in one.description} == said.keys() - hidden
    assert {one.name for one in listings if "instructions" in f"{one.error}{one.quarantined}"} == said.keys() & hidden


# Cyrillic, Cyrillic alone, Greek, Armenian, Coptic, fullwidth, mathematical, a numeral, phonetic letters, ASCII.
LOOK_ALIKES = [
    "p\u0430y_copy", "\u0440\u0430\u0443_\u0441\u043e\u0440\u0443", "pay_c\u03bfpy", "pay_c\u0585py", "\u2ca3ay_copy",
    "\uff50ay_copy", "\U0001d429ay_copy", "pay_\u217dopy", "p\u0251y_copy", "pay_cop\u028f", "pay_c0py", "Pay_Copy",
    "modern",
]  # fmt: skip
DIFFERENT = {"поиск", "αναζήτηση", "検索", "café", "list_v1", "list_v2", "list_v10", "get_item", "get_items"}


async def test_of_names_that_look_alike_the_plain_one_is_in_use(harness: GatewayHarness) -> None:
    offered = ["pay_copy", "modem", *LOOK_ALIKES, *sorted(DIFFERENT)]

    assert await in_use(harness, [PLAIN | {"name": name} for name in offered]) == {"pay_copy", "modem"} | DIFFERENT


@pytest.mark.parametrize("name", ["p\u0430y_copy", "\u0440\u0430\u0443_\u0441\u043e\u0440\u0443"], ids=ascii)
async def test_tool_that_looks_like_one_of_another_server_is_not_in_use(harness: GatewayHarness, name: str) -> None:
    async with harness.gateway() as gateway:
        first = offering(harness.folder, PLAIN | {"name": "pay_copy"})
        second = offering(harness.folder, PLAIN | {"name": name}, PLAIN, name="b")
        await gateway.catalog.add("a", first)
        other = named(await gateway.catalog.add("b", second), "b")

    assert [tool.name for tool in other.tools] == ["plain"]


@pytest.mark.parametrize("name", ["paypa1", "paypaI"])
async def test_server_with_a_name_that_looks_like_another_is_refused(harness: GatewayHarness, name: str) -> None:
    async with harness.gateway() as gateway:
        await gateway.catalog.add("paypal", offering(harness.folder, PLAIN))

        with pytest.raises(ConfigurationError):
            await gateway.catalog.add(name, offering(harness.folder, PLAIN, name="b"))


class ListingSession:
    """A session of a server that says this."""

    server = "a"

    def __init__(self, instructions: str, tools: list[dict[str, Any]]) -> None:
        about = wire.Implementation(name="a", version="1")
        self.info = wire.InitializeResult(
            protocolVersion="1", capabilities=wire.ServerCapabilities(), serverInfo=about, instructions=instructions
        )
        self.tools = tools

    async def page(self, _: str | None) -> ToolsPage:
        return ToolsPage(tools=self.tools)

    def stop(self) -> None:
        pass


def public_servers() -> dict[str, tuple[str, dict[str, dict[str, Any]]]]:
    """Return what public servers say of themselves, and their tools; whole definitions where these are known."""
    servers = {row["server"]: (row["description"] or "", {t["name"]: PLAIN | t for t in row["tools"]})
               for row in public_server_rows()}  # fmt: skip
    for row in rows("mcp_listings/weird_schemas.jsonl"):
        servers.setdefault(row["server"], ("", {}))[1][row["tool"]["name"]] = row["tool"]
    return servers


async def test_share_of_public_servers_with_a_quarantined_text() -> None:
    stopped: dict[str, object] = {}
    for server, (description, tools) in public_servers().items():
        found = await list_server(cast("Session", ListingSession(description, [PLAIN, *tools.values()])))
        pins = judged({}, found.tools, {}, Occasion("strict", "file", first=True))
        reasons = [pin.reason for pin in pins.values() if pin.state == "quarantined"]
        if reasons or description[:40] not in found.description:
            stopped[server] = reasons or found.description

    assert len(stopped) / len(public_servers()) <= 0.01, stopped
