"""Servers are listed once, pinned whole, and a broken one stops nobody else."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from mcp_gateway import connections
from mcp_gateway.configuration.servers import ServerConfig, server_of
from mcp_gateway.connections import connect
from mcp_gateway.registration import catalog, listing_schedule
from mcp_gateway.registration.discovery import try_servers
from mcp_gateway.registration.listed_tools import Listed
from mcp_gateway.registration.listing_schedule import AT_ONCE
from mcp_gateway.registration.repository import ServerRepository, ServerRow
from mcp_gateway.sessions.isolation import NO_PRIVATE_FILES
from starling.core.errors import ConfigurationError, ServerUnavailableError
from starling.core.settings.schema import Limits
from starling.core.tool_calls import Effect
from starling.infra.postgres.tables.registry import servers, tools
from tests.support.absent_services import open_gateway
from tests.support.gateway_harness import (
    SERVERS,
    GatewayHarness,
    listed,
    python,
    wait_for,
)

WELL = SERVERS / "misbehaving.py"


@pytest.mark.parametrize("relist", [False, True])
async def test_servers_of_a_file_are_listed_a_few_at_a_time(
    harness: GatewayHarness, monkeypatch: pytest.MonkeyPatch, relist: bool
) -> None:
    at_once: list[int] = [0]

    async def list_once(*_: object) -> Listed:
        at_once.append(at_once[-1] + 1)
        for _turn in range(3):
            await asyncio.sleep(0)
        at_once.append(at_once[-1] - 1)
        return Listed("", {}, ())

    monkeypatch.setattr(connections, "list_once", list_once)
    async with harness.gateway() as gateway:
        await gateway.catalog.sync({f"s{number}": harness.recording() for number in range(3 * AT_ONCE)}, relist=relist)

    assert max(at_once) == AT_ONCE


async def test_server_is_listed_once_and_stored(harness: GatewayHarness) -> None:
    async with harness.gateway() as gateway:
        first = await gateway.catalog.sync({"a": harness.recording()})
        second = await gateway.catalog.sync({"a": harness.recording()})
    async with harness.gateway() as another:
        third = another.listing("a")

    assert first == second == (third,)
    assert harness.recorded() == ["started"]


async def test_listing_holds_description_tools_schemas_and_effects(harness: GatewayHarness) -> None:
    listing = await harness.listed(harness.recording(tools={"pid": {"side_effect_free": True}}))

    assert (listing.state, listing.error) == ("ready", "")
    assert listing.description == "Keeps a record of every call."
    add = next(tool for tool in listing.tools if tool.name == "add")
    assert add.description == "Add two whole numbers."
    assert add.input_schema["required"] == ["first"]
    assert add.output_schema is not None
    assert {tool.name: tool.effect for tool in listing.tools if tool.effect is not Effect.UNSAFE} == {
        "pid": Effect.READ
    }


async def test_configured_description_overrides_that_of_the_server(harness: GatewayHarness) -> None:
    async with harness.gateway() as gateway:
        assert (await listed(gateway, harness.recording(description="Ours"))).description == "Ours"


async def test_tool_hash_changes_with_its_definition(harness: GatewayHarness) -> None:
    pins: set[str] = set()
    async with harness.gateway() as gateway:
        for number, words in enumerate(("Does it.", "Does it, says the new version.")):
            harness.record.write_text(words)
            config = harness.misbehaving("changing", description=str(number), pins="text")
            pins.add((await listed(gateway, config)).tools[0].hash)
        async with harness.engine.connect() as connection:
            kept = (await connection.execute(select(tools.c.hash).where(tools.c.name == "act"))).scalars().all()

    assert len(pins) == 2
    assert set(kept) == pins


async def test_separately_added_server_is_neither_removed_nor_replaced_by_a_file(harness: GatewayHarness) -> None:
    async with harness.gateway() as gateway:
        await gateway.catalog.sync({"a": harness.recording()})
        async with harness.engine.begin() as connection:
            await connection.execute(update(servers).values(source="host"))
        await gateway.catalog.sync({})

        assert gateway.listing("a") is not None
        with pytest.raises(ConfigurationError, match="a belong to servers"):
            await gateway.catalog.sync({"a": harness.recording()})


async def test_document_over_http_replaces_those_of_files_and_a_file_takes_over_what_it_names(
    harness: GatewayHarness,
) -> None:
    async with harness.gateway() as gateway:
        await gateway.catalog.sync({"a": harness.recording(), "b": harness.recording()})
        await gateway.catalog.sync(dict.fromkeys("bcd", harness.recording()), source="api")
        over_http = await harness.sources()
        await gateway.catalog.sync({"c": harness.recording()})
        from_file = await harness.sources()
        await gateway.catalog.sync({}, source="api")

    assert over_http == {"b": "file", "c": "api", "d": "api"}
    assert from_file == {"c": "file", "d": "api"}
    assert await harness.sources() == {}
    assert harness.recorded() == ["started"] * 4


BROKEN: dict[str, tuple[ServerConfig, str]] = {
    "missing": (server_of({"command": "no-such-program"}), "'no-such-program' was not found"),
    "no-folder": (server_of({"command": "sh", "cwd": "/no/such"}), "/no/such doesn't exist"),
    "no-variable": (server_of({"command": "sh", "args": ["${NO_SUCH}"]}), "NO_SUCH is not set"),
    "unreachable": (server_of({"url": "http://127.0.0.1:9/mcp"}), "can't be reached"),
    "no-address": (server_of({"url": "nowhere"}), "is not an HTTP address"),
    "no-header": (
        server_of({"url": "http://127.0.0.1:9/mcp", "headers": {"X-Who": "Zoë"}}),
        "'X-Who' has what no header can have",
    ),
    "quiet-end": (server_of({"command": "true"}), "it ended with exit code 0"),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_server_that_cannot_be_started_is_degraded_with_the_reason(harness: GatewayHarness, name: str) -> None:
    config, said = BROKEN[name]
    listing = await harness.listed(config)

    assert (listing.state, listing.tools) == ("degraded", ())
    assert said in listing.error
    assert listing.remedy


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("crashing", "exit code 3; its last line on stderr: no such database: prod"),
        ("silent", "didn't answer within 1 s"),
        ("garbage", "didn't answer within 4 s; it wrote "),  # it starts meanwhile
        ("flood", "it wrote 10001 lines to stdout that are not MCP messages"),
        ("endless", "doesn't end (100 tools so far)"),
        ("same-names", "none of its tools can be used: 'act': its name is listed twice."),
        ("no-list", "is not what MCP defines"),
        ("huge-list", "too big (2500 tools"),
        ("long-line", "a message longer than 16 MiB"),
    ],
)
async def test_misbehaving_server_is_degraded_with_the_reason(harness: GatewayHarness, how: str, said: str) -> None:
    seconds = next((limit for limit in (1, 4) if f"within {limit} s" in said), 60)
    listing = await harness.listed(harness.misbehaving(how), server_start_seconds=seconds)

    assert (listing.state, listing.tools) == ("degraded", ())
    assert said in listing.error
    assert listing.remedy


async def test_server_that_writes_other_text_to_stdout_is_usable(harness: GatewayHarness) -> None:
    async with harness.gateway() as gateway:
        assert (await listed(gateway, harness.misbehaving("chatty"))).state == "ready"


async def test_tool_without_a_usable_schema_is_omitted(harness: GatewayHarness) -> None:
    listing = await harness.listed(harness.misbehaving("one-bad-schema"))

    assert (listing.state, [tool.name for tool in listing.tools]) == ("ready", ["act"])
    assert "'bad': its inputSchema is not a valid JSON schema" in listing.error
    assert "'worse': its inputSchema is not an object" in listing.error


async def test_configured_tool_that_the_server_lacks_is_reported(harness: GatewayHarness) -> None:
    asked = {"act": {"reconcile": "look_up"}, "atc": {"approval": "always"}}
    async with harness.gateway() as gateway:
        misnamed = await listed(gateway, harness.misbehaving("well", tools=asked))
        both = await listed(gateway, harness.misbehaving("one-bad-schema", tools=asked))

    said = "Its configuration names tools that it doesn't have: atc, look_up."
    assert (misnamed.state, misnamed.error) == ("ready", said)
    assert "x-starling" in misnamed.remedy
    assert both.error.startswith("Left out: 'bad'")
    assert both.error.endswith(said)


async def test_degraded_server_is_listed_again(harness: GatewayHarness, tmp_path: Path) -> None:
    script = tmp_path / "later.py"
    async with harness.gateway() as gateway:
        before = await listed(gateway, python(script))
        script.write_text(f"import os, sys; os.execv(sys.executable, [sys.executable, {str(WELL)!r}, 'well'])")
        after = await listed(gateway, python(script))

    assert (before.state, after.state) == ("degraded", "ready")


class Meddled(ServerRepository):
    """Servers of which one is removed by somebody else just after each look, once that is wanted."""

    unwanted = ""
    looks = 0

    async def servers(self) -> list[ServerRow]:
        rows = await super().servers()
        if self.unwanted:
            self.looks += 1
            await super().change([self.unwanted], ())
        return rows


async def test_server_removed_while_it_is_being_listed_stays_removed(
    harness: GatewayHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "GRACE_SECONDS", 0.1)
    repository, permission = Meddled(harness.engine), tmp_path / "go"

    async with open_gateway(repository, connect, Limits(), harness.environment) as gateway:
        config = {"good": python(WELL, "well"), "late": python(WELL, "late", str(permission))}
        before = await gateway.catalog.sync(config, starting=True)
        repository.unwanted = "late"
        permission.touch()
        await wait_for(lambda: repository.looks == 2)
        repository.unwanted = ""
        after = await gateway.refresh()

    assert [listing.name for listing in before] == ["good", "late"]
    assert [listing.name for listing in after] == ["good"]


async def test_changed_server_that_lists_slowly_at_a_start_keeps_its_last_listing_until_then(
    harness: GatewayHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(catalog, "GRACE_SECONDS", 0.1)
    permission = tmp_path / "go"
    good, slow = python(WELL, "well"), python(WELL, "late", str(permission))

    async with harness.gateway() as old, harness.gateway() as starting:
        [_, listed_before] = await old.catalog.sync({"good": good, "slow": python(WELL, "well")})
        await starting.catalog.sync({"good": good, "slow": slow}, starting=True)
        [_, during] = await old.refresh()
        permission.touch()
        await wait_for(lambda: starting.listing("slow") != during)
        [_, after] = await old.refresh()

    assert during == listed_before
    assert [line for line in caplog.messages if "slow changed: it has not listed its tools yet" in line]
    assert (after.state, after.config_hash) == ("ready", slow.hash)


async def test_changed_server_that_fails_at_a_start_keeps_its_listing_under_its_new_settings(
    harness: GatewayHarness, tmp_path: Path
) -> None:
    broken = python(tmp_path / "missing.py", effect="read")

    async with harness.gateway() as gateway:
        before = await listed(gateway, python(WELL, "well"))
        [at_start] = await gateway.catalog.sync({"a": broken}, starting=True)
        [reloaded] = await gateway.catalog.sync({"a": broken})

    assert [tool.name for tool in at_start.tools] == [tool.name for tool in before.tools]
    assert {tool.effect for tool in at_start.tools} == {Effect.READ}
    assert (at_start.state, reloaded.state) == ("ready", "degraded")


@pytest.fixture
def npx(harness: GatewayHarness) -> ServerConfig:
    """A server whose launcher takes a while: until a file `go` exists."""
    launcher = harness.folder / "npx"
    launcher.write_text(
        f"#!/bin/sh\nwhile [ ! -e {harness.folder}/go ]; do sleep 0.1; done\nexec {sys.executable} $@\n"
    )
    launcher.chmod(0o755)
    harness.environment = {"PATH": f"{harness.folder}:{harness.environment['PATH']}"}
    return server_of({"command": "npx", "args": [str(WELL), "well"], "env": {"PATH": "${PATH}"}})


async def test_start_does_not_wait_for_a_launcher_that_downloads_its_server_and_lists_it_later(
    harness: GatewayHarness, npx: ServerConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(catalog, "GRACE_SECONDS", 0.1)

    async with harness.gateway(server_start_seconds=0.2) as gateway:
        [at_start] = await gateway.catalog.sync({"a": npx}, starting=True)
        (harness.folder / "go").touch()
        await wait_for(lambda: gateway.listing("a") != at_start)
        [later] = await gateway.refresh()
        await gateway.catalog.sync({"a": npx}, relist=True)  # it has its usual time

    assert "it has 90 s from its start" in at_start.error
    assert caplog.messages.count("MCP server a has 90 s for its first start: its command may download it") == 1
    assert later.state == "ready"


async def test_launcher_that_is_too_slow_fails_with_the_time_that_it_had(
    harness: GatewayHarness, npx: ServerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing_schedule, "DOWNLOAD_SECONDS", 0.3)
    limits = Limits(server_start_seconds=0.1)

    async with harness.gateway(server_start_seconds=0.1) as gateway:
        [stored] = await gateway.catalog.sync({"a": npx})
    tried = (await try_servers({"a": npx}, limits, harness.environment, NO_PRIVATE_FILES))["a"]

    assert isinstance(tried, ServerUnavailableError)
    assert "It had 0.3 s since it may have been downloading." in stored.error
    assert "It had 0.3 s since it may have been downloading." in tried.reason


async def test_concurrent_listings_of_two_processes_succeed(harness: GatewayHarness) -> None:
    config = {name: harness.recording() for name in ("a", "b", "c")}
    async with harness.gateway() as one, harness.gateway() as other:
        found = await asyncio.gather(one.catalog.sync(config), other.catalog.sync(config))

    assert found[0] == found[1]


async def test_server_that_the_api_replaces_has_to_be_approved_again(harness: GatewayHarness, tmp_path: Path) -> None:
    offered = tmp_path / "tools.json"
    offered.write_text('[{"name": "act", "inputSchema": {"type": "object"}}]')

    def at(*address: str, **options: Any) -> ServerConfig:
        return python(SERVERS / "offering.py", str(offered), str(harness.record), *address, **options)

    async with harness.gateway() as gateway:
        before = await gateway.catalog.sync({"a": at("here")})
        reworded = await gateway.catalog.sync({"a": at("here", description="Ours")}, source="api")
        [unlisted] = await gateway.catalog.sync({"a": server_of({"command": "/nowhere"})}, source="api")
        [moved] = await gateway.catalog.sync({"a": at("there")}, source="api")
        [listed_again] = await gateway.catalog.sync({"a": at("there")}, source="api", relist=True)
        removed = await gateway.catalog.sync({}, source="api")
        [back] = await gateway.catalog.sync({"a": at("there")}, source="api")

    assert [[tool.name for tool in listing.tools] for listing in (*before, *reworded)] == [["act"], ["act"]]
    assert (unlisted.state, removed) == ("degraded", ())
    for listing in (moved, listed_again, back):
        assert (listing.state, listing.tools) == ("ready", ())
        assert listing.quarantined == {"act": "Its server was replaced over the API: nobody has approved it there."}
