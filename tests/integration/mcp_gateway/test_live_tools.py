"""What a server offers on an open session is compared with what was approved, before the first call and when told."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mcp_gateway.configuration.servers import ServerConfig
from mcp_gateway.connections import connect
from mcp_gateway.gateway import Gateway
from mcp_gateway.registration import live_check
from mcp_gateway.registration.repository import ServerRepository, ServerRow
from starling.core.settings.schema import Limits
from starling.core.tool_calls import Observation
from starling.infra.postgres.tables.registry import tool_pins
from tests.support.absent_services import open_gateway
from tests.support.gateway_harness import SERVERS, GatewayHarness, call, listed, python

ACT: dict[str, Any] = {"name": "act", "description": "Does it.", "inputSchema": {"type": "object"}}
MORE = ACT | {"name": "more"}
ANNOUNCE = ACT | {"name": "announce"}
CHANGED = ACT | {"description": "Does it, and more."}
RESHAPED = ACT | {"inputSchema": {"type": "object", "required": ["n"]}}


class Offering:
    """A server whose tools the test changes."""

    def __init__(self, harness: GatewayHarness, *tools: dict[str, Any]) -> None:
        self._file = harness.folder / "tools.json"
        self._harness = harness
        self.offer(*tools)

    def offer(self, *tools: dict[str, Any]) -> None:
        self._file.write_text(json.dumps(tools))

    def config(self, **options: Any) -> ServerConfig:
        return python(SERVERS / "offering.py", str(self._file), str(self._harness.record), **options)

    def calls(self) -> list[Any]:
        return [entry for line in self._harness.recorded() if (entry := json.loads(line)) != "listed"]

    def listings(self) -> int:
        return self._harness.recorded().count('"listed"')


@asynccontextmanager
async def counting(harness: GatewayHarness, **limits: Any) -> AsyncGenerator[tuple[Gateway, list[Sequence[ServerRow]]]]:
    """Yield a gateway, and the servers after each change that an open session made."""
    changes: list[Sequence[ServerRow]] = []

    async def changed(_: AsyncConnection, rows: Sequence[ServerRow]) -> None:
        changes.append(rows)

    observed = ServerRepository(harness.engine, changed)
    opening = open_gateway(
        ServerRepository(harness.engine), connect, Limits(**limits), harness.environment, observed=observed
    )
    async with opening as gateway:
        yield gateway, changes


async def pins(harness: GatewayHarness) -> dict[str, tuple[str, str]]:
    async with harness.engine.connect() as connection:
        found = await connection.execute(select(tool_pins.c.tool, tool_pins.c.state, tool_pins.c.reason))
        return {tool: (state, reason) for tool, state, reason in found}


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not reached():  # noqa: ASYNC110 - another task or process gets there
            await asyncio.sleep(0.01)


async def test_tool_that_changed_since_its_approval_is_not_called_and_is_quarantined(harness: GatewayHarness) -> None:
    server = Offering(harness, ACT, MORE)
    async with counting(harness) as (gateway, changes):
        listing = await listed(gateway, server.config())
        server.offer(CHANGED, MORE, ACT | {"name": "new"})

        refused = await call(gateway, listing, "act")
        other = await call(gateway, listing, "more")
        await until(lambda: bool(changes))
        [after] = await gateway.refresh()
        again = await call(gateway, listing, "act")

    assert (refused.code, refused.observation) == ("quarantined", Observation.NOT_SENT)
    assert "`starling server approve a act` shows how" in refused.text
    assert (other.text, server.calls()) == ("done", [["more", {}]])
    assert [tool.name for tool in after.tools] == ["more"]
    assert after.quarantined == {
        "act": "Its definition was changed by its server: description.",
        "new": "It appeared after its server was approved.",
    }
    assert (again.code, "changed by its server: description" in again.text) == ("quarantined", True)


@pytest.mark.parametrize(
    ("policy", "offered", "code"),
    [("text", CHANGED, ""), ("text", RESHAPED, "quarantined"), ("follow", RESHAPED, "")],
    ids=["text-text", "text-shape", "follow"],
)
async def test_policy_decides_whether_a_tool_that_changed_is_called(
    harness: GatewayHarness, policy: str, offered: dict[str, Any], code: str
) -> None:
    server = Offering(harness, ACT)
    async with harness.listing(server.config(pins=policy)) as (gateway, listing):
        server.offer(offered)

        assert (await call(gateway, listing, "act")).code == code


async def test_missing_tool_is_refused_and_makes_no_epoch(harness: GatewayHarness) -> None:
    server = Offering(harness, ACT, MORE)
    async with counting(harness) as (gateway, changes):
        listing = await listed(gateway, server.config())
        server.offer(MORE)

        outcome = await call(gateway, listing, "act")
        await until(lambda: bool(changes))

    assert (outcome.code, outcome.observation) == ("quarantined", Observation.NOT_SENT)
    assert "doesn't offer it any more" in outcome.text
    assert changes[0][0].tools == {tool.name: tool.hash for tool in listing.tools}
    assert await pins(harness) == {"act": ("gone", "Its server doesn't offer it any more."), "more": ("approved", "")}


async def test_tools_are_listed_once_on_a_session_before_its_first_calls(harness: GatewayHarness) -> None:
    server = Offering(harness, ACT)
    async with harness.listing(server.config()) as (gateway, listing):
        await asyncio.gather(*(call(gateway, listing, "act") for _ in range(8)))

    assert (server.listings(), len(server.calls())) == (2, 8)


async def test_server_whose_tools_change_all_the_time_causes_one_change(harness: GatewayHarness) -> None:
    server = Offering(harness, ACT)
    async with counting(harness, session_idle_seconds=0.01) as (gateway, changes):
        listing = await listed(gateway, server.config())
        for number in range(8):
            server.offer(ACT if number % 2 else CHANGED, *([MORE] if number % 3 else []))
            await call(gateway, listing, "act")
            await until(lambda: gateway.open_sessions == 0)
            if not number:
                await until(lambda: bool(changes))

    assert server.listings() == 9
    assert len(changes) == 1
    assert (await pins(harness))["act"][0] == "quarantined"


async def test_announced_change_is_listed_once_and_refused_then(
    harness: GatewayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_check, "DEBOUNCE_SECONDS", 0.2)
    monkeypatch.setattr(live_check, "AGAIN_SECONDS", 0.0)
    server = Offering(harness, ACT, ANNOUNCE)
    async with harness.listing(server.config()) as (gateway, listing):
        before = await call(gateway, listing, "act")
        server.offer(CHANGED, ANNOUNCE)
        await call(gateway, listing, "announce")
        await until(lambda: server.listings() > 2)
        after = await call(gateway, listing, "act")

    assert (before.code, after.code) == ("", "quarantined")
    assert server.listings() == 3


async def test_tools_are_listed_again_and_stored_after_each_call_that_says_so(
    harness: GatewayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_check, "DEBOUNCE_SECONDS", 0.1)
    monkeypatch.setattr(live_check, "AGAIN_SECONDS", 0.0)
    server, offered = Offering(harness, ACT), [ACT]
    async with counting(harness) as (gateway, changes):
        listing = await listed(gateway, server.config(pins="follow", tools={"act": {"post_effects": ["relist"]}}))
        for number in (1, 2):
            offered.append(ACT | {"name": f"more{number}"})
            server.offer(*offered)
            await call(gateway, listing, "act")
            await until(lambda number=number: len(changes) == number)

    assert [set(rows[0].tools) for rows in changes] == [{"act", "more1"}, {"act", "more1", "more2"}]


async def test_real_name_is_what_the_server_gets_and_the_alias_what_agents_see(harness: GatewayHarness) -> None:
    server = Offering(harness, ACT | {"name": "Users Tool"}, ACT | {"name": "!mysql"})
    async with harness.listing(server.config(tools={"Users_Tool": {"effect": "read"}})) as (gateway, listing):
        for tool in listing.tools:
            await call(gateway, listing, tool.name)

    assert [(tool.full_name, tool.effect.value) for tool in listing.tools] == [
        ("a.Users_Tool", "read"),
        ("a.mysql", "unsafe"),
    ]
    assert listing.error == ""
    assert server.calls() == [["Users Tool", {}], ["!mysql", {}]]
