"""Reads of resources that results link to: by their own server, under the grant of the tool that linked them."""

from dataclasses import replace
from typing import Any

import pytest
from mcp import McpError
from mcp.types import (
    METHOD_NOT_FOUND,
    BlobResourceContents,
    CallToolResult,
    ErrorData,
    ReadResourceResult,
    ResourceLink,
    TextResourceContents,
)
from pydantic import AnyUrl

from starling.core.errors import ServerUnavailableError
from starling.core.principal import Grant
from starling.core.tool_calls import Effect, Observation
from starling.core.tools import ToolCall
from tests.support.in_memory_run import make_execution
from tests.support.scripted_path import ScriptedPath, ScriptedServer

FILE = "file:///etc/passwd"
NOT_KEPT = "not kept: no artifact store is configured"


class Library(ScriptedServer):
    """Links to resources, and has their contents."""

    read: list[str]
    fails: bool = False
    lost: bool = False  # once
    text: str = "own words"

    async def call(self, call: ToolCall, arguments: dict[str, Any], meta: Any) -> CallToolResult:
        links = [ResourceLink(type="resource_link", uri=AnyUrl(uri), name="one") for uri in (FILE, "book://1", FILE)]
        return CallToolResult(content=[*links])

    async def read_resource(self, uri: str) -> ReadResourceResult:
        self.read = [*getattr(self, "read", []), uri]
        if self.lost:
            self.lost = False
            raise ServerUnavailableError("shop", "it ended.", "")
        if self.fails:
            raise McpError(ErrorData(code=METHOD_NOT_FOUND, message="no resources here"))
        blob = BlobResourceContents(uri=AnyUrl(uri), blob="AAAA", mimeType="image/png")
        return ReadResourceResult(contents=[TextResourceContents(uri=AnyUrl(uri), text=self.text), blob])


def reading(path: ScriptedPath, uri: str = FILE, **fields: Any) -> ToolCall:
    call = path.call("find", arguments={"uri": uri}, resource=uri, **fields)
    return replace(call, tool=call.tool.reading())


async def test_result_names_the_addresses_that_it_links_to() -> None:
    path = ScriptedPath(server=Library())

    outcome = await path.made(path.call("find"))

    assert outcome.resources == (FILE, "book://1")
    assert f"[resource {FILE}, " in outcome.text


async def test_resource_is_read_by_the_server_that_linked_it_whatever_its_address() -> None:
    server = Library()
    path = ScriptedPath(server=server)

    outcome = await path.made(reading(path), make_execution().context.ledger)

    assert (outcome.status, server.read) == ("succeeded", [FILE])
    assert (
        outcome.text
        == f"own words\n[resource {FILE}, application/octet-stream, declared as image/png, 3 bytes, {NOT_KEPT}]"
    )


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"grant": Grant(tools=frozenset({"shop.order"}))}, "not_allowed"),
        ({"grant": Grant(tools=frozenset({"shop.find"}))}, ""),
    ],
)
async def test_grant_of_the_linking_tool_decides_on_the_read(fields: dict[str, Any], code: str) -> None:
    path = ScriptedPath(server=Library())

    assert (await path.made(reading(path, **fields))).code == code


async def test_resource_linked_by_a_changed_tool_is_not_read() -> None:
    server = Library()
    path = ScriptedPath(server=server)
    call = reading(path)
    path.list_tools(replace(path.tool("find"), hash="other"))

    outcome = await path.made(call)

    assert (outcome.code, hasattr(server, "read")) == ("removed", False)


async def test_long_resource_is_cut() -> None:
    server = Library()
    server.text = "x" * 100_000
    path = ScriptedPath(server=server)

    outcome = await path.made(reading(path))

    assert outcome.truncated
    assert len(outcome.text) < 100_000


async def test_resource_whose_session_was_lost_is_asked_for_again() -> None:
    server = Library()
    server.lost = True
    path = ScriptedPath(server=server)

    outcome = await path.made(reading(path))

    assert (outcome.status, server.read) == ("succeeded", [FILE, FILE])


async def test_refusal_of_the_server_is_an_outcome() -> None:
    server = Library()
    server.fails = True

    outcome = await ScriptedPath(server=server).made(reading(ScriptedPath(server=server)))

    assert (outcome.status, outcome.code) == ("failed", "tool_error")
    assert "no resources here" in outcome.text


async def test_read_on_behalf_of_a_tool_that_counts_as_effectful_is_not_made() -> None:
    server = Library()
    path = ScriptedPath(server=server)

    outcome = await path.made(replace(reading(path), tool=path.tool("find", Effect.UNSAFE)))

    assert (outcome.observation, hasattr(server, "read")) == (Observation.NOT_SENT, False)


async def test_policy_always_has_reads_approved_too_and_unsafe_has_not() -> None:
    for approval, code in (("always", "not_approved"), ("unsafe", "")):
        path = ScriptedPath({"approval": approval}, server=Library())

        assert (await path.made(reading(path))).code == code
