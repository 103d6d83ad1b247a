"""Reloading while everything runs: planned, done, heard of everywhere, and taken back."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, text, update
from sqlalchemy.ext.asyncio import AsyncEngine

from brain.registry.manifest import Names
from mcp_gateway.configuration.servers import McpConfig, server_of
from starling.app.registry import epoch_follower
from starling.core.agents import LLMAgentConfig
from starling.core.errors import ConfigurationError, ConflictError, InvalidRequestError, NotFoundError
from starling.core.ids import new_id
from starling.core.principal import SHARED, Principal, Scope
from starling.core.teams.spec import TeamSpec
from starling.core.tool_calls import Effect
from starling.infra.postgres.audit import Actor, latest
from starling.infra.postgres.tables.registry import epochs, servers
from tests.integration.brain.conftest import Open
from tests.support.gateway_harness import SERVERS, call, free_port, named, python, wait_for
from tests.support.model_server import ModelServer
from tests.support.platform import (
    BENCH,
    Platform,
    ScriptedModel,
    Workbench,
    calls,
    decision,
    open_platform,
    task,
    verdict,
)

ADMIN = Actor("default", "key-1", "192.0.2.7")


@pytest.fixture
def make(workbench: Workbench) -> Callable[..., McpConfig]:
    """Make a configuration of servers that are all the workbench, with these options each."""

    def config(**servers: dict[str, Any]) -> McpConfig:
        return {
            name: server_of(workbench.as_server("read") | {"x-starling": {"effect": "read"} | options})
            for name, options in servers.items()
        }

    return config


async def stored(engine: AsyncEngine) -> tuple[object, ...]:
    """Everything that a change may touch."""
    async with engine.connect() as connection:
        rows = (await connection.execute(select(servers).order_by(servers.c.name))).all()
        return *rows, await connection.scalar(select(func.max(epochs.c.number)))


def any_config(workbench: Workbench, dice: random.Random) -> McpConfig:
    """Some of six servers, each with options of its own; some can't be reached."""
    dead = f"http://127.0.0.1:{free_port()}/mcp"
    found: McpConfig = {}
    for name in dice.sample("abcdef", dice.randint(0, 6)):
        options: dict[str, Any] = {"effect": dice.choice(["read", "unsafe"])}
        options |= dice.choice([{}, {"description": "Ours."}, {"tenants": ["red"]}, {"tools": {"look": {}}}])
        url = dice.choice([workbench.url, workbench.url, workbench.url, dead])
        found[name] = server_of({"url": url, "x-starling": options})
    return found


@pytest.mark.parametrize("seed", range(4))
async def test_reload_makes_the_changes_that_the_plan_lists(
    platform: Platform, workbench: Workbench, seed: int
) -> None:
    registry, dice = platform.services.registry, random.Random(seed)

    for _ in range(6):
        config = any_config(workbench, dice)
        planned = await registry.plan(config)
        done = await registry.reload(config, ADMIN)

        assert done.changes == planned.changes
        assert done.warnings.keys() == planned.warnings.keys()
        assert done.epoch == planned.epoch + bool(planned.changes)
        assert not (await registry.plan(config)).changes


async def test_plan_names_servers_tools_and_agents_and_changes_nothing(
    platform: Platform, engine: AsyncEngine, make: Callable[..., McpConfig]
) -> None:
    before = await stored(engine)

    report = await platform.services.registry.plan(make(bench={"description": "Ours."}, extra={}))

    assert report.changes.servers.model_dump() == {"added": ("extra",), "changed": ("bench",), "removed": ("shop",)}
    assert report.changes.details == {"bench": ("config", "description")}
    assert "look" in report.changes.tools["extra"].added
    assert "look" in report.changes.tools["shop"].removed
    assert report.changes.agents.added == ("mcp_agent_extra",)
    assert not report.changes.broken_teams
    assert await stored(engine) == before


async def test_reload_that_names_a_separately_added_server_is_refused_as_a_whole(
    platform: Platform, engine: AsyncEngine, make: Callable[..., McpConfig]
) -> None:
    registry = platform.services.registry
    await registry.add("extra", make(extra={})["extra"], ADMIN)
    before = await stored(engine)

    for attempt in (registry.plan(make(extra={})), registry.reload(make(extra={}, other={}), ADMIN)):
        with pytest.raises(ConfigurationError, match="belong to servers that were added"):
            await attempt

    assert await stored(engine) == before


async def test_reload_warns_of_a_server_that_cannot_be_listed(platform: Platform) -> None:
    config = {"dead": server_of({"command": "no-such-command-anywhere"})}

    planned = await platform.services.registry.plan(config)
    done = await platform.services.registry.reload(config, ADMIN)

    assert done == replace(planned, epoch=planned.epoch + 1)
    assert "no-such-command-anywhere" in done.warnings["dead"]


async def test_plan_names_custom_agents_that_would_lose_their_tools(
    platform: Platform, make: Callable[..., McpConfig]
) -> None:
    registry = platform.services.registry
    for tenant, config in (
        ("red", LLMAgentConfig(id="looker", tools=("bench.look",))),
        ("blue", LLMAgentConfig(id="looker", tools=("shop.*",))),
        ("blue", LLMAgentConfig(id="poet")),
    ):
        await platform.services.agents.create(Principal(tenant, "", frozenset(Scope)), config, ADMIN)
    shrunk, hidden = make(shop={}), make(shop={}, bench={"tenants": ["blue"]})

    plans = [await registry.plan(config) for config in (make(shop={}, bench={}), shrunk, hidden, {})]
    done = await registry.reload(shrunk, ADMIN)

    missing = "It needs tools that aren't there: {}."
    red, blue = missing.format("bench.look"), missing.format("shop.*")
    assert [plan.broken_agents for plan in plans] == [
        {},
        {"red/looker": red},
        {"red/looker": red},
        {"blue/looker": blue, "red/looker": red},
    ]
    assert done.broken_agents == {"red/looker": red}


async def test_changed_tool_is_quarantined_by_a_new_listing_until_it_is_approved(
    platform: Platform, tmp_path: Path
) -> None:
    registry, words = platform.services.registry, tmp_path / "words"
    config = {"a": python(SERVERS / "misbehaving.py", "changing", str(words))}
    words.write_text("Does it.")
    await registry.reload(config, ADMIN)
    words.write_text("Does it, says the new version.")

    unnoticed, noticed = await registry.plan(config), await registry.plan(config, relist=True)
    done = await registry.reload(config, ADMIN, relist=True)
    [pin] = (await platform.services.server_documents.one("a")).pins
    approved = await registry.approve("a", {"act": pin.offered_hash or ""}, ADMIN)
    (entry,) = await latest(platform.services.storage.engine, "default", limit=1)

    assert not unnoticed.changes
    assert noticed.changes.tools == {"a": Names(removed=("act",))}
    assert noticed.quarantined == {"a": {"act": "Its definition was changed by its server: description."}}
    assert (done.changes, done.quarantined) == (noticed.changes, noticed.quarantined)
    assert '-  "description": "Does it.",' in pin.diff
    assert '+  "description": "Does it, says the new version.",' in pin.diff
    assert approved.changes.tools == {"a": Names(added=("act",))}
    assert approved.quarantined == {}
    assert (entry.action, entry.target) == ("server.approve", "a")
    assert (entry.by, entry.origin) == (ADMIN.name, ADMIN.origin)


async def test_approval_of_a_definition_that_changed_again_is_refused(platform: Platform, tmp_path: Path) -> None:
    registry, words = platform.services.registry, tmp_path / "words"
    config = {"a": python(SERVERS / "misbehaving.py", "changing", str(words))}
    hashes: list[str] = []
    for description in ("Does it.", "Does it well.", "Does it badly."):
        words.write_text(description)
        await registry.reload(config, ADMIN, relist=True)
        if description == "Does it well.":
            hashes = [pin.offered_hash or "" for pin in (await platform.services.server_documents.one("a")).pins]

    with pytest.raises(ConflictError, match="changed again"):
        await registry.approve("a", {"act": hashes[0]}, ADMIN)
    with pytest.raises(NotFoundError, match="no offered tool 'other'"):
        await registry.approve("a", {"other": hashes[0]}, ADMIN)


async def test_policy_decides_which_changes_are_followed_and_a_server_wide_effect_waits_for_approval(
    platform: Platform, tmp_path: Path
) -> None:
    registry, words = platform.services.registry, tmp_path / "words"
    config: McpConfig = {
        policy: python(SERVERS / "misbehaving.py", "changing", str(words), pins=policy, effect="read")
        for policy in ("strict", "text", "follow")
    }
    words.write_text("Does it.")
    await registry.reload(config, ADMIN)
    words.write_text("Does it, says the new version.")

    done = await registry.reload(config, ADMIN, relist=True)

    servers = (await platform.services.storage.epochs.get(done.epoch)).manifest.servers
    effects = {name: [pin.effect for pin in entry.tools.values()] for name, entry in servers.items()}
    assert effects == {"strict": [], "text": [Effect.READ], "follow": [Effect.UNSAFE]}

    [pin] = (await platform.services.server_documents.one("follow")).pins
    confirmed = await registry.approve("follow", {"act": pin.offered_hash or ""}, ADMIN)

    tools = (await platform.services.storage.epochs.get(confirmed.epoch)).manifest.servers["follow"].tools
    assert (pin.state, pin.by, tools["act"].effect) == ("approved", "policy", Effect.READ)


async def test_rollback_approves_what_the_earlier_epoch_had(platform: Platform, tmp_path: Path) -> None:
    registry, words = platform.services.registry, tmp_path / "words"
    config = {"a": python(SERVERS / "misbehaving.py", "changing", str(words))}
    words.write_text("Does it.")
    first = await registry.reload(config, ADMIN)
    words.write_text("Does it, says the new version.")
    await registry.reload(config, ADMIN, relist=True)

    back = await registry.rollback(first.epoch, ADMIN)

    assert back.quarantined == {}
    assert back.changes.tools == {"a": Names(added=("act",))}


async def test_rollback_creates_a_new_epoch_with_the_content_of_an_earlier_one(
    platform: Platform, engine: AsyncEngine, make: Callable[..., McpConfig]
) -> None:
    registry = platform.services.registry
    before = await stored(engine)
    original = await platform.services.storage.epochs.active()
    await registry.reload(make(other={}), ADMIN)
    await registry.reload({}, ADMIN)

    done = await registry.rollback(original.number, ADMIN)

    active = await platform.services.storage.epochs.active()
    assert (done.epoch, active.number, active.manifest) == (4, 4, original.manifest)
    assert done.changes.servers.added == ("bench", "shop")
    assert [row[:9] for row in (await stored(engine))[:-1]] == [row[:9] for row in before[:-1]]  # pyright: ignore[reportIndexIssue]
    stream = await registry.rollback(None, ADMIN)
    assert (stream.epoch, stream.changes.servers.removed) == (5, ("bench", "shop"))


async def test_rollback_keeps_the_warnings_of_servers_that_stay(
    platform: Platform, make: Callable[..., McpConfig]
) -> None:
    registry, dead = platform.services.registry, {"dead": server_of({"command": "no-such-command-anywhere"})}
    partly = {"partly": python(SERVERS / "misbehaving.py", "one-bad-schema")}
    broken = await registry.reload(dead | partly, ADMIN)
    await registry.reload(dead | partly | make(extra={}), ADMIN)

    stayed = await registry.rollback(broken.epoch, ADMIN)
    await registry.reload({}, ADMIN)
    came_back = await registry.rollback(broken.epoch, ADMIN)

    assert stayed.warnings == broken.warnings
    assert "registry reload" in came_back.warnings["dead"]


async def test_rollback_keeps_custom_agents_and_names_those_it_breaks(
    platform: Platform, make: Callable[..., McpConfig]
) -> None:
    registry, agents = platform.services.registry, platform.services.agents
    tenant = Principal("red", "", frozenset(Scope))
    await registry.reload(make(bench={}, extra={}), ADMIN)
    await agents.create(tenant, LLMAgentConfig(id="poet"), ADMIN)
    await agents.create(tenant, LLMAgentConfig(id="looker", tools=("extra.look",)), ADMIN)

    latest_change = await registry.rollback(None, ADMIN)
    the_first = await registry.rollback(1, ADMIN)

    assert latest_change.changes.servers == Names(added=("shop",), removed=("extra",))
    assert latest_change.broken_agents == {"red/looker": "It needs tools that aren't there: extra.look."}
    assert not the_first.changes
    assert {agent.name for agent in (await agents.list(tenant)).agents} >= {"poet", "looker"}


async def test_rollback_leaves_teams_as_they_are_now(platform: Platform, make: Callable[..., McpConfig]) -> None:
    registry, teams = platform.services.registry, platform.services.teams
    tenant = Principal("red", "", frozenset(Scope))
    await registry.reload(make(bench={}, extra={}), ADMIN)
    for name in ("archived", "kept"):
        looker = {"name": "looker", "role": "Looker", "goal": "Look.", "server": "extra", "tools": ["extra.look"]}
        spec = TeamSpec.model_validate({"name": name, "purpose": "Looks.", "members": [looker]})
        await teams.add(tenant, name, spec, ADMIN)
        both = await teams.activate(tenant, name, None, ADMIN)
    await teams.archive(tenant, "archived", ADMIN)

    back = await registry.rollback(1, ADMIN)
    forth = await registry.rollback(both.epoch, ADMIN)

    manifest = (await platform.services.storage.epochs.active()).manifest
    assert back.broken_teams == {"red/kept": "looker: Its server 'extra' was removed."}
    assert forth.broken_teams == {}
    assert manifest.teams.keys() == {"red/kept"}


async def test_rollback_to_an_epoch_that_does_not_exist_is_refused(platform: Platform) -> None:
    with pytest.raises(InvalidRequestError, match="no earlier epoch"):
        await platform.services.registry.rollback(None, ADMIN)
    with pytest.raises(NotFoundError, match="no epoch '9'"):
        await platform.services.registry.rollback(9, ADMIN)


async def test_audit_entry_of_each_change_names_actor_and_origin(
    platform: Platform, engine: AsyncEngine, make: Callable[..., McpConfig]
) -> None:
    registry = platform.services.registry
    await registry.reload(make(bench={}), ADMIN)
    await registry.reload(make(bench={}), ADMIN)  # changes nothing
    await registry.add("extra", make(extra={})["extra"], ADMIN)
    await registry.remove("extra", ADMIN)
    await registry.rollback(2, ADMIN)

    entries = await latest(engine, "default", limit=10)
    (start,) = await latest(engine, SHARED, limit=10)
    assert [(entry.action, entry.target) for entry in reversed(entries)] == [
        ("registry.reload", "epoch 2"),
        ("server.add", "epoch 3"),
        ("server.remove", "epoch 4"),
    ]
    assert {(entry.by, entry.origin) for entry in entries} == {(ADMIN.name, ADMIN.origin)}
    assert entries[0].detail["servers"]["removed"] == ["extra"]
    assert (start.by, start.origin, start.action) == ("local", "start", "registry.start")
    assert [
        (record.number, record.actor, record.origin) for record in await platform.services.storage.epochs.latest(2)
    ] == [
        (4, "key-1", "192.0.2.7"),
        (3, "key-1", "192.0.2.7"),
    ]


async def test_runs_continue_during_reloads(
    platform: Platform, script: ScriptedModel, workbench: Workbench, make: Callable[..., McpConfig]
) -> None:
    place = new_id()
    script.run(decision(task("t1", BENCH)), t1=calls(("wait", {"place": place})), qa=verdict("APPROVED"))
    registry, gateway = platform.services.registry, platform.worker_runtime.gateway
    shapes = (
        make(bench={}, extra={}),
        make(bench={"description": "Changed."}),
        make(bench={"max_sessions": 2}, other={}),
        make(bench={"max_sessions": 2}, other={"description": "Changed."}, shop={}),
    )

    async with asyncio.TaskGroup() as group:
        runs = [group.create_task(platform.ask("Wait.", thread=str(number))) for number in range(5)]
        await wait_for(lambda: workbench.done().count(f"wait {place}") == 5)
        for shape in shapes:
            await registry.reload(shape, ADMIN)
            await gateway.refresh()
        await call(gateway, named(await gateway.refresh(), "bench"), "go", place=place)

    stream = [run.result() for run in runs]
    assert [run.status for run in stream] == ["succeeded"] * 5
    assert {run.of("run_started")[0]["epoch"] for run in stream} == {1}
    assert await platform.services.storage.epochs.active_number() == 5


@pytest.mark.parametrize("changed_before", [False, True])
async def test_call_in_flight_fails_when_its_server_is_removed(
    platform: Platform, workbench: Workbench, make: Callable[..., McpConfig], changed_before: bool
) -> None:
    place = new_id()
    gateway = platform.worker_runtime.gateway
    listing = gateway.listing("bench")
    assert listing is not None

    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(call(gateway, listing, "wait", place=place))
        await wait_for(lambda: f"wait {place}" in workbench.done())
        if changed_before:
            await platform.services.registry.reload(make(bench={"timeout": 7}, shop={"effect": "unsafe"}), ADMIN)
            await gateway.refresh()
        await platform.services.registry.reload(make(shop={"effect": "unsafe"}), ADMIN)

    assert (waiting.result().code, waiting.result().text) == (
        "removed",
        "The server bench was removed while it was called.",
    )


@pytest.fixture
def looking_is_too_slow_to_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epoch_follower, "_LOOK_SECONDS", 600)


@pytest.mark.usefixtures("looking_is_too_slow_to_help")
async def test_every_process_applies_a_reload_before_its_polling_interval_ends(
    platform: Platform, database_url: str, model: ModelServer, tmp_path: Path, make: Callable[..., McpConfig]
) -> None:
    folder = tmp_path / "second"
    folder.mkdir()
    shared = {"bench": make(bench={})["bench"].document}
    async with open_platform(database_url, model, shared, folder) as second:
        runtimes = (platform.worker_runtime, second.worker_runtime)
        for number in range(3):
            name = f"extra{number}"
            done = await platform.services.registry.reload(make(bench={}, **{name: {}}), ADMIN)

            await wait_for(lambda: {runtime.epoch_follower.epoch for runtime in runtimes} == {done.epoch})  # noqa: B023

            assert all(runtime.gateway.listing(name) is not None for runtime in runtimes)
            assert await second.services.storage.epochs.active_number() == done.epoch
    assert runtimes[0].gateway.listing("shop") is None


async def test_failure_to_follow_the_registry_is_logged_and_keeps_the_servers(
    platform: Platform, engine: AsyncEngine, caplog: pytest.LogCaptureFixture
) -> None:
    newer = {"type": "stdio", "command": "x", "x-starling": {"what_a_later_version_knows": 1}}

    async with engine.begin() as connection:
        await connection.execute(update(servers).where(servers.c.name == "shop").values(config=newer))
        await connection.execute(text("SELECT pg_notify('starling_registry', '')"))

    await wait_for(lambda: "the background task follow-registry failed" in caplog.text)
    assert platform.worker_runtime.gateway.listing("shop") is not None


async def test_epochs_of_unfinished_runs_stay_open(
    opened: Open, script: ScriptedModel, make: Callable[..., McpConfig]
) -> None:
    script.supervisor(decision(reply="Hello."))
    async with opened() as platform:
        key = await platform.accept("Hello.")
        await platform.services.registry.reload(make(bench={}), ADMIN)
        await platform.worker_runtime.epoch_follower.tidy()
        held = {
            record.number: (record.runs, record.closed_at)
            for record in await platform.services.storage.epochs.latest(5)
        }
        await platform.finish(key)
        await platform.worker_runtime.epoch_follower.tidy()
        left = {record.number: record for record in await platform.services.storage.epochs.latest(5)}

    assert held[1] == (1, None)
    assert left[1].closed_at is not None
    assert left[2].active
