"""Teams in the database: versions, activation in epochs, grants, tenants."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, select, update

from architect.checks import checked
from brain.registry.cards import Roster
from brain.registry.manifest import Manifest, ServerEntry, ToolPin
from brain.registry.service import with_servers
from starling.app.container.database import Database
from starling.app.container.services import open_services
from starling.app.services import Services
from starling.app.teams import service
from starling.app.teams.service import ActivatedTeam
from starling.core.agents import LLMAgentConfig
from starling.core.errors import ConflictError, InvalidRequestError, NotFoundError
from starling.core.principal import SHARED, Grant, Principal, Scope
from starling.core.settings.schema import Settings
from starling.core.teams.spec import Finding, TeamInvalidError, TeamLimits, TeamSpec
from starling.core.tool_calls import Effect
from starling.infra.postgres.audit import Actor, latest
from starling.infra.postgres.engine import Engine
from starling.infra.postgres.tables.registry import epochs, tools, workflows

ACTOR = Actor("default", "k1", "10.0.0.7")
OWNER = Principal("default", "k1", frozenset(Scope))
STRANGER = Principal("elsewhere", "k2", frozenset(Scope))
ODD_NUMBERS = st.sampled_from(
    [-0.0, 1e16, -1e16, 1.2345678901234568e17, 2.0**63, 1e22, 1e23, 1e30, 5e-324, 2.0, 10**30]
)
NUMBERS = ODD_NUMBERS | st.integers() | st.floats()
BOUNDED = settings(
    max_examples=30, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
TOOLS = {"git": ("log", "add"), "web": ("search",)}


def spec(purpose: str = "Researches.", *, name: str = "crew", **member: Any) -> TeamSpec:
    historian = {"name": "historian", "role": "Historian", "goal": "Find out.", "server": "git", **member}
    searcher = {"name": "searcher", "role": "Searcher", "goal": "Find pages.", "server": "web"}
    return TeamSpec.model_validate({"name": name, "purpose": purpose, "members": [historian, searcher]})


def limited(*names: str, tenant: str = "default") -> Principal:
    return Principal(tenant, "k3", frozenset(Scope), Grant(tools=frozenset(names)))


def entry(server: str) -> ServerEntry:
    pins = {tool: ToolPin(hash="0" * 64, effect=Effect.UNSAFE) for tool in TOOLS[server]}
    return ServerEntry(config_hash="", source="file", state="ready", description=server, tools=pins)


async def publish(engine: Engine, admin: Services, *servers: str) -> int:
    """Make an epoch of these servers."""
    entries = {server: entry(server) for server in servers}
    async with engine.begin() as connection:
        activation = await admin.storage.epochs.activate(connection, ACTOR, lambda one: with_servers(one, entries))
    return activation.epoch.number


@pytest.fixture
async def admin(engine: Engine, database_url: str) -> AsyncGenerator[Services]:
    async with open_services(Settings(), Database(database_url, database_url)) as services:
        async with engine.begin() as connection:
            for server, names in TOOLS.items():
                for name in names:
                    row = {"server": server, "name": name, "hash": "0" * 64, "definition": {"description": name}}
                    await connection.execute(insert(tools).values(tenant=SHARED, **row))
        await publish(engine, services, *TOOLS)
        yield services


async def add(admin: Services, made: TeamSpec, caller: Principal = OWNER) -> int:
    return (await admin.teams.add(caller, made.name, made, ACTOR)).version


async def activate(admin: Services, version: int | None = None, caller: Principal = OWNER) -> ActivatedTeam:
    return await admin.teams.activate(caller, "crew", version, ACTOR)


async def states(admin: Services) -> list[str]:
    return [one.state for one in await admin.teams.versions("default", "crew")]


async def manifest(admin: Services) -> Manifest:
    return (await admin.storage.epochs.active()).manifest


async def test_activated_team_is_on_the_roster_of_another_process_with_its_first_epoch(
    admin: Services, database_url: str
) -> None:
    async with open_services(Settings(), Database(database_url, database_url)) as other:
        before = await other.storage.rosters.roster(await other.storage.epochs.active_number() or 0, "default")
        await add(admin, spec())

        done = await activate(admin)

        assert await other.storage.epochs.active_number() == done.epoch
        card = (await other.storage.rosters.roster(done.epoch, "default")).cards["crew"]
    assert "crew" not in before.cards
    assert (card.kind, card.description, card.servers) == ("team", "Researches.", ("git", "web"))
    assert [tool.full_name for tool in card.members["historian"].tools] == ["git.add", "git.log"]
    assert done.tools == ("git.add", "git.log", "web.search")
    assert (await manifest(admin)).teams == {"default/crew": done.star}


async def test_versions_are_numbered_and_an_equal_newest_one_is_not_stored_again(admin: Services) -> None:
    first, again = await add(admin, spec()), await add(admin, spec())
    second, back = await add(admin, spec("Digs.")), await add(admin, spec())

    assert [first, again, second, back] == [1, 1, 2, 3]
    assert await states(admin) == ["draft"] * 3


@BOUNDED
@given(result=st.recursive(NUMBERS, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner)))
async def test_stored_spec_is_read_with_the_hash_of_the_imported_one(admin: Services, result: object) -> None:
    fixture = {"tool": "git.log", "arguments": {"limit": result}, "result": result}
    examples = [{"id": "one", "input": "What?", "fixtures": [fixture]}]
    made = TeamSpec.model_validate({**spec().model_dump(), "examples": examples})

    await add(admin, made)

    *_, stored = await admin.teams.versions("default", "crew")
    assert (stored.hash, stored.spec.hash, stored.spec) == (made.hash, made.hash, made)
    sent = TeamSpec.model_validate(json.loads(stored.spec.model_dump_json()))
    assert not (await admin.teams.add(OWNER, "crew", sent, ACTOR)).created


async def test_spec_of_a_key_with_another_grant_is_a_version_of_its_own(admin: Services) -> None:
    await add(admin, spec(), limited("git.log", "web.search"))

    assert await add(admin, spec()) == 2


async def test_concurrent_imports_get_numbers_of_their_own(admin: Services) -> None:
    numbers = await asyncio.gather(*(add(admin, spec(f"Purpose {number}.")) for number in range(5)))

    assert sorted(numbers) == [1, 2, 3, 4, 5]


async def test_slow_check_of_an_import_holds_neither_the_registry_nor_the_event_loop(
    admin: Services, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    checking, may_end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slowly(*arguments: Any) -> list[Finding]:
        loop.call_soon_threadsafe(checking.set)
        assert may_end.wait(timeout=60)
        return checked(*arguments)

    monkeypatch.setattr(service, "checked", slowly)
    importing = asyncio.create_task(add(admin, spec()))
    await checking.wait()

    number = await publish(engine, admin, "git")

    assert await admin.storage.epochs.active_number() == number
    may_end.set()
    assert await importing == 1


async def test_concurrent_activations_leave_one_active_version_and_an_epoch_each(
    admin: Services, engine: Engine
) -> None:
    versions = [await add(admin, spec(f"Purpose {number}.")) for number in range(4)]
    before = await admin.storage.epochs.active_number() or 0

    done = await asyncio.gather(*(activate(admin, version) for version in versions))

    last = max(done, key=lambda one: one.epoch)
    assert sorted(one.epoch for one in done) == list(range(before + 1, before + 5))
    assert sorted(await states(admin)) == ["active", "superseded", "superseded", "superseded"]
    assert (await states(admin))[last.version - 1] == "active"
    assert (await manifest(admin)).teams == {"default/crew": last.star}
    async with engine.connect() as connection:
        assert len((await connection.scalars(select(epochs.c.number).where(epochs.c.active))).all()) == 1


async def test_nothing_that_is_done_to_a_version_changes_its_spec_hash_and_creator(
    admin: Services, engine: Engine
) -> None:
    async def stored() -> list[Any]:
        columns = (workflows.c[name] for name in ("version", "spec", "hash", "created_by", "creator_grant"))
        async with engine.connect() as connection:
            return [tuple(row) for row in await connection.execute(select(*columns).order_by(workflows.c.version))]

    caller = limited("git.log", "web.search")
    await add(admin, spec(), caller)
    await add(admin, spec("Digs."))
    before = await stored()

    await activate(admin, 1)
    await activate(admin, 2)
    await admin.teams.rollback(OWNER, "crew", ACTOR)
    await admin.teams.archive(OWNER, "crew", ACTOR)
    await activate(admin, 2)

    assert await stored() == before


async def test_activating_again_keeps_the_epoch_is_not_audited_and_says_that_a_version_was_never_tried(
    admin: Services, engine: Engine
) -> None:
    await add(admin, spec())

    done, again = await activate(admin), await activate(admin)

    assert again == done
    assert done.not_judged == ("crew@1 was never tried: it has no proof.",)
    assert [item.action for item in await latest(engine, "default", limit=9)] == ["team.activate", "team.import"]


async def test_failed_activation_changes_nothing(admin: Services, engine: Engine) -> None:
    await add(admin, spec())
    number = await publish(engine, admin, "web")

    with pytest.raises(TeamInvalidError) as refused:
        await activate(admin)

    assert [finding.rule for finding in refused.value.findings] == ["unknown_server"]
    assert (await states(admin), await admin.storage.epochs.active_number()) == (["draft"], number)


@pytest.mark.parametrize(
    ("creator", "activator", "kept", "left_out"),
    [
        (OWNER, OWNER, ("git.add", "git.log", "web.search"), ()),
        (limited("git.log", "web.search"), OWNER, ("git.log", "web.search"), ("git.add",)),
        (OWNER, limited("git.add", "web.search"), ("git.add", "web.search"), ("git.log",)),
    ],
    ids=["no limits", "creator", "activator"],
)
async def test_team_gets_what_its_creator_and_its_activator_may_call(
    admin: Services, creator: Principal, activator: Principal, kept: tuple[str, ...], left_out: tuple[str, ...]
) -> None:
    await add(admin, spec(), creator)

    done = await activate(admin, caller=activator)

    card = (await admin.storage.rosters.roster(done.epoch, "default")).cards["crew"]
    assert (done.tools, done.left_out) == (kept, left_out)
    assert tuple(sorted(tool.full_name for tool in card.tools)) == kept


async def test_rollback_activates_the_highest_earlier_version_that_was_active_and_stops_at_the_first(
    admin: Services,
) -> None:
    for number in range(3):
        await add(admin, spec(f"Purpose {number}."))
    await activate(admin, 1)
    await activate(admin, 3)

    back = await admin.teams.rollback(OWNER, "crew", ACTOR)

    assert (back.version, await states(admin)) == (1, ["active", "draft", "superseded"])
    with pytest.raises(ConflictError, match="no version before 1 that was active and not archived since"):
        await admin.teams.rollback(OWNER, "crew", ACTOR)
    await admin.teams.archive(OWNER, "crew", ACTOR)
    await activate(admin, 3)
    with pytest.raises(ConflictError, match="no version before 3 that was active and not archived since"):
        await admin.teams.rollback(OWNER, "crew", ACTOR)


async def test_archived_team_is_unavailable_to_later_runs_until_a_version_is_activated(admin: Services) -> None:
    await add(admin, spec())
    active = await activate(admin)

    gone = await admin.teams.archive(OWNER, "crew", ACTOR)

    assert (gone.epoch, await states(admin)) == (active.epoch + 1, ["archived"])
    assert (await manifest(admin)).teams == {}
    with pytest.raises(ConflictError):
        await admin.teams.archive(OWNER, "crew", ACTOR)
    with pytest.raises(ConflictError):
        await admin.teams.rollback(OWNER, "crew", ACTOR)
    assert (await activate(admin, 1)).epoch == gone.epoch + 1
    assert await states(admin) == ["active"]


async def test_versions_of_an_archived_team_stay_archived_but_for_the_one_that_is_activated(
    admin: Services,
) -> None:
    await add(admin, spec())
    await add(admin, spec("Digs."))
    await activate(admin, 2)
    await admin.teams.archive(OWNER, "crew", ACTOR)

    await activate(admin, 1)
    again = await add(admin, spec("Digs."))

    assert (again, await states(admin)) == (3, ["active", "archived", "draft"])


async def test_run_that_began_before_keeps_the_star_of_its_epoch(admin: Services, engine: Engine) -> None:
    await add(admin, spec())
    first = await activate(admin)
    await publish(engine, admin, *TOOLS)

    second = await activate(admin, caller=limited("git.log", "web.search"))

    rosters = [await admin.storage.rosters.roster(one.epoch, "default") for one in (first, second)]
    assert [len(one.cards["crew"].tools) for one in rosters] == [3, 2]


async def test_team_of_one_tenant_is_unknown_to_another(admin: Services) -> None:
    await add(admin, spec())
    done = await activate(admin)

    assert "crew" not in (await admin.storage.rosters.roster(done.epoch, "elsewhere")).cards
    assert (await admin.teams.list(STRANGER)).teams == []
    for attempt in unknown_to(admin, STRANGER):
        with pytest.raises(NotFoundError):
            await attempt()
    assert await add(admin, spec("Ours."), STRANGER) == 1
    assert await states(admin) == ["active"]


def unknown_to(admin: Services, caller: Principal) -> list[Callable[[], Coroutine[Any, Any, object]]]:
    teams = admin.teams
    return [
        lambda: teams.show(caller, "crew"),
        lambda: teams.versions(caller.tenant, "crew"),
        lambda: teams.star(caller, "crew", 1),
        lambda: teams.activate(caller, "crew", 1, ACTOR),
        lambda: teams.rollback(caller, "crew", ACTOR),
        lambda: teams.archive(caller, "crew", ACTOR),
    ]


async def test_team_inside_a_team_is_kept_as_it_was_when_the_outer_one_was_activated(admin: Services) -> None:
    await add(admin, spec())
    inner = await activate(admin)
    member = {"name": "crew_of_ours", "role": "Crew", "goal": "Research.", "team": "crew"}
    outer = TeamSpec.model_validate({"name": "outer", "purpose": "Asks.", "members": [member]})
    await add(admin, outer)
    await admin.teams.activate(OWNER, "outer", None, ACTOR)
    await add(admin, outer.model_copy(update={"purpose": "Asks more."}))

    await add(admin, spec("Digs."))
    changed = await activate(admin)
    gone = await admin.teams.archive(OWNER, "crew", ACTOR)

    card = (await admin.storage.rosters.roster(gone.epoch, "default")).cards["outer"].members["crew_of_ours"]
    assert (inner.used_in, changed.used_in, gone.used_in) == ((), ("outer@1",), ("outer@1",))
    assert card.star is not None
    assert card.star.hash == inner.star


async def test_outer_team_of_an_archived_one_can_not_be_activated_and_the_reason_names_it(admin: Services) -> None:
    lead = {"name": "lead", "role": "Lead", "goal": "Lead.", "team": "crew"}
    await add(admin, spec())
    await activate(admin)
    await add(admin, TeamSpec.model_validate({"name": "outer", "purpose": "Leads.", "members": [lead]}))
    await admin.teams.archive(OWNER, "crew", ACTOR)

    with pytest.raises(TeamInvalidError) as refused:
        await admin.teams.activate(OWNER, "outer", None, ACTOR)

    assert refused.value.message == "outer@1 can't be activated now."
    assert refused.value.remedy.startswith("members[0].team: The team 'crew' is archived.")
    like_it = spec(name="cr2w"), spec(name="crevv")  # "vv" looks like "w"
    assert [[one.rule for one in (await admin.teams.check(OWNER, made))[0]] for made in like_it] == [
        [],
        ["look_alike_name"],
    ]


async def test_only_the_spec_that_is_needed_is_read(admin: Services, engine: Engine) -> None:
    for number in range(4):
        await add(admin, spec(f"Purpose {number}."))
    await activate(admin, 2)
    await activate(admin, 3)
    unreadable = update(workflows).where(workflows.c.version.in_([1, 3])).values(spec={})
    async with engine.begin() as connection:
        await connection.execute(unreadable)
    teams = admin.teams

    back = await teams.rollback(OWNER, "crew", ACTOR)
    shown, drawn = await teams.show(OWNER, "crew"), await teams.star(OWNER, "crew", 4)
    added = await add(admin, spec("Digs."))
    done = await activate(admin, 4)
    gone = await teams.archive(OWNER, "crew", ACTOR)

    assert (back.version, shown.version, shown.versions, drawn.purpose) == (2, 2, 4, "Purpose 3.")
    assert (added, done.version, gone.epoch) == (5, 4, done.epoch + 1)


async def test_team_that_is_shown_while_another_version_is_activated_has_the_members_of_one_version(
    admin: Services,
) -> None:
    await add(admin, spec())
    await activate(admin)
    members = [one.model_copy(update={"name": f"{one.name}_2"}) for one in spec().members]
    await add(admin, spec().model_copy(update={"members": tuple(members)}))

    async def roster(caller: Principal) -> tuple[int, Roster]:
        await activate(admin)
        return await admin.teams.roster(caller)

    shown = await replace(admin.teams, roster=roster).show(OWNER, "crew")

    assert (shown.version, [one.name for one in shown.members]) == (1, ["historian", "searcher"])
    assert [one.version for one in await admin.teams.versions("default", "crew") if one.state == "active"] == [2]


async def test_custom_agent_and_team_never_share_a_name(admin: Services) -> None:
    await add(admin, spec())

    with pytest.raises(InvalidRequestError, match="belongs to a team"):
        await admin.agents.create(OWNER, LLMAgentConfig(id="crew"), ACTOR)
    with pytest.raises(InvalidRequestError, match="'c-rew' looks like 'crew'"):
        await admin.agents.create(OWNER, LLMAgentConfig(id="c-rew"), ACTOR)
    await admin.agents.create(OWNER, LLMAgentConfig(id="poet"), ACTOR)
    with pytest.raises(TeamInvalidError, match="belongs to one of your agents"):
        await add(admin, spec(name="poet"))


async def test_list_has_the_active_version_of_each_team_else_the_newest(admin: Services) -> None:
    for one in (spec("First."), spec("Second."), spec("Other.", name="another"), spec("Newest.", name="another")):
        await add(admin, one)
    await activate(admin, 1)

    found = (await admin.teams.list(OWNER)).teams

    assert [(one.name, one.purpose, one.state, one.version, one.versions) for one in found] == [
        ("another", "Newest.", "draft", 2, 2),
        ("crew", "First.", "active", 1, 2),
    ]


async def test_limit_that_the_platform_overrides_is_a_note_at_check_import_and_activation(admin: Services) -> None:
    made = spec().model_copy(update={"limits": TeamLimits(seconds=600, tokens=1_000)})  # a run has 300 s

    findings, checked_notes = await admin.teams.check(OWNER, made)
    imported = await admin.teams.add(OWNER, made.name, made, ACTOR)
    again = await admin.teams.add(OWNER, made.name, made, ACTOR)
    activated = await activate(admin)

    assert findings == []
    assert [note.path for note in checked_notes] == ["limits.seconds"]
    assert "300" in str(checked_notes[0])
    assert (imported.notes, again.notes, activated.notes) == (checked_notes, checked_notes, checked_notes)
