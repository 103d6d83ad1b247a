"""What builds store: versions with proofs, names, activation, approvals, once each."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import func, select, update

from architect.team_store import BuiltTeam, PublishedVersion, TeamStore
from brain.registry.manifest import ServerEntry, ToolPin
from brain.registry.service import with_servers
from starling.app.access.keys import KeySpec
from starling.app.container.database import Database
from starling.app.container.services import open_services
from starling.app.runs.acceptance import RunRequest
from starling.app.services import Services
from starling.core.agents import LLMAgentConfig
from starling.core.errors import ConflictError, ForbiddenError, LeaseLostError, QuotaExceededError, RunCancelledError
from starling.core.principal import HOST_ADMIN, Grant, Principal, Scope
from starling.core.settings.schema import Limits, Settings
from starling.core.teams.building import Approval, BuildCase, BuildOrigin, BuildRequest
from starling.core.teams.proofs import CaseReport, PartReport, ProofReport, ProofState, TrialCall, TrialRecord
from starling.core.teams.spec import TeamInvalidError, TeamSpec
from starling.core.tool_calls import Effect
from starling.infra.postgres.audit import Actor, latest
from starling.infra.postgres.keys import KeyRepository
from starling.infra.postgres.kill_switches import Target
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.tables.access import keys
from starling.infra.postgres.tables.registry import epochs, workflows
from starling.infra.postgres.tables.run_records import runs

OWNER = Principal("default", "018f0000-0000-7000-8000-0000000000a1", frozenset(Scope))
LIMITED = replace(OWNER, key_id="018f0000-0000-7000-8000-0000000000a3", grant=Grant(tools=frozenset({"web.search"})))
BUILDER = frozenset({Scope.RUN, Scope.TEAMS})
ACTOR = Actor.caller(OWNER, "10.0.0.7")
EFFECTS = {"git.log": Effect.READ, "git.add": Effect.UNSAFE, "web.search": Effect.READ}
SEARCH, LOG, ADD = "web.search", "git.log", "git.add"


def spec(name: str = "crew", *tools: str, **fields: Any) -> TeamSpec:
    members = [
        {
            "name": f"member{number}",
            "role": "Finder",
            "goal": "Find.",
            "server": tool.partition(".")[0],
            "tools": [tool],
        }
        for number, tool in enumerate(tools or (SEARCH,))
    ]
    return TeamSpec.model_validate({"name": name, "purpose": "Researches.", "members": members, **fields})


def proof(made: TeamSpec, state: ProofState = "proven", run_id: str = "r", **hashes: str) -> ProofReport:
    """Return a proof with the hashes of its tools as they are now; `hashes` are others, by `server_tool`."""
    tools = {tool: "0" * 64 for member in made.members for tool in member.tools}
    return ProofReport(
        state=state,
        score=0.5 if state == "failed" else 1.0,
        threshold=1.0,
        cases=(CaseReport(id="one", passed=True, simulation_only=False, criteria=(), trial=trial()),),
        spec_hash=made.hash,
        tools=tools | {name.replace("_", "."): value for name, value in hashes.items()},
        run_id=run_id,
        trace_id="t",
    )


def trial() -> TrialRecord:
    call = TrialCall(tool=SEARCH, path="t1/case-one/t1", status="succeeded", source="live")
    return TrialRecord(path="t1/case-one", reply="Found\x00it.", calls=(call,))


def built(made: TeamSpec, state: ProofState = "proven", *, activate: bool = True, **hashes: str) -> BuiltTeam:
    return BuiltTeam(made, "Find things.", proof(made, state, **hashes), activate)


def of_a_whole_server(state: ProofState = "proven") -> BuiltTeam:
    """Return a team whose member has all tools of a server, proved when that had one."""
    member = {"name": "finder", "role": "Finder", "goal": "Find.", "server": "web"}
    made = TeamSpec.model_validate({"name": "crew", "purpose": "Researches.", "members": [member]})
    proved = proof(made, state).model_copy(update={"tools": {SEARCH: "0" * 64}})
    return BuiltTeam(made, "Find.", proved, activate=True)


@dataclass(frozen=True, slots=True)
class Office:
    """The store of teams, and runs that build."""

    services: Services

    @property
    def store(self) -> TeamStore:
        return self.services.team_store

    async def epoch(self, **effects: Effect) -> int:
        """Make an epoch of the tools; `effects` are of further tools, by `server_tool`."""
        servers: dict[str, dict[str, ToolPin]] = {}
        for tool, effect in (EFFECTS | {name.replace("_", "."): one for name, one in effects.items()}).items():
            server, _, name = tool.partition(".")
            servers.setdefault(server, {})[name] = ToolPin(hash="0" * 64, effect=effect)
        entries = {
            server: ServerEntry(config_hash="", source="file", state="ready", description=server, tools=pins)
            for server, pins in servers.items()
        }
        async with self.services.storage.engine.begin() as connection:
            done = await self.services.storage.epochs.activate(
                connection, ACTOR, lambda one: with_servers(one, entries)
            )
        return done.epoch.number

    async def build(self, name: str | None = None, caller: Principal = OWNER, **fields: Any) -> BuildOrigin:
        """Accept the build of a team and claim its run."""
        request = BuildRequest(goal="Find things.", name=name, **fields)
        return await self.claimed(caller, (await self.services.builds.team(caller, request)).key)

    async def change(self, name: str) -> BuildOrigin:
        request = BuildRequest(kind="version", goal="Find more.")
        return await self.claimed(OWNER, (await self.services.builds.version(OWNER, name, request)).key)

    async def prove(self, name: str, version: int | None = None) -> BuildOrigin:
        return await self.claimed(OWNER, (await self.services.builds.proof(OWNER, name, version)).key)

    async def claimed(self, caller: Principal, key: RunKey) -> BuildOrigin:
        claim = await self.services.runs.leases.claim(key, worker="test", lease_seconds=60, run_seconds=60)
        assert claim is not None
        return BuildOrigin(caller, key.id, claim.run.fence, "t1", claim.run.trace_id, claim.run.epoch)

    async def import_team(self, made: TeamSpec) -> int:
        return (await self.services.teams.add(OWNER, made.name, made, ACTOR)).version

    async def states(self, name: str = "crew") -> list[str]:
        return [one.state for one in await self.services.teams.versions("default", name)]

    async def actions(self) -> list[str]:
        return [entry.action for entry in reversed(await latest(self.services.storage.engine, "default", limit=20))]

    async def forbid(self, change: str) -> None:
        """Take from the owner's key, or from its tenant, what a build needs."""
        services, stored = self.services, update(keys).where(keys.c.id == OWNER.key_id)
        if change == "revoked":
            await services.storage.keys.revoke(HOST_ADMIN, OWNER.key_id, ACTOR)
        elif change.endswith("off"):
            target = Target("tenant", "default") if "tenant" in change else Target("agent", "architect", "default")
            await services.storage.switches.off(target, "Closed.", ACTOR)
        else:
            values = {"expires_at": func.now()} if change == "expired" else {"scopes": ["run"]}
            async with services.storage.engine.begin() as connection:
                await connection.execute(stored.values(**values))

    async def admin_key(self, *scopes: Scope, grant: Grant | None = None) -> str:
        wish = KeySpec("admin", "default", frozenset(scopes or {Scope.ADMIN}), grant)
        return (await self.services.storage.keys.create(HOST_ADMIN, wish, ACTOR))[0].id


@pytest.fixture
async def office(database_url: str) -> AsyncGenerator[Office]:
    settings = Settings(database_url=SecretStr(database_url), limits=Limits(teams_per_tenant=3))
    async with open_services(settings, Database(database_url, database_url)) as services:
        office = Office(services)
        await office.epoch()
        for caller in (OWNER, LIMITED):
            spec = KeySpec("test", "default", caller.scopes, caller.grant)
            await KeyRepository(services.storage.engine).create(caller.key_id, b"", spec, ACTOR, lambda _: None)
        yield office


async def test_proven_team_without_unsafe_tools_is_active_at_once_and_audited(office: Office) -> None:
    origin = await office.build("crew")
    before = await office.services.storage.epochs.active_number() or 0

    done = await office.store.publish(origin, built(spec()))

    assert done == PublishedVersion("crew", 1, "active", spec().hash, (SEARCH,), before + 1)
    history = (await office.services.teams.history("default", "crew")).changes
    assert [entry.action for entry in history] == ["team.build", "team.prove", "team.activate"]
    assert {(entry.by, entry.detail["run_id"]) for entry in history} == {(OWNER.key_id, origin.run_id)}
    assert history[0].detail["goal"] == "Find things."
    (version,) = await office.services.teams.versions("default", "crew")
    assert (version.goal, version.built_by, version.activated_by) == (
        "Find things.",
        origin.run_id,
        OWNER.key_id,
    )
    assert version.proof
    assert (version.proof.state, version.proof.score, version.proof.tools) == ("proven", 1.0, {SEARCH: "0" * 64})
    report = await office.services.teams.proof("default", "crew", 1)
    assert report.cases[0].trial.reply == "Found�it."


@pytest.mark.parametrize(
    ("made", "state", "approval"),
    [
        (built(spec(), "unproven"), "unproven", "not proven"),
        (built(spec("crew", LOG, ADD)), "proven", "may change something that can't be taken back: git.add"),
        (built(spec(), web_search="1" * 64), "proven", "changed since it was proved: web.search"),
        (built(spec(), git_gone="0" * 64), "proven", "changed since it was proved: git.gone"),
        (built(spec(), "failed"), "draft", ""),
        (built(spec(), activate=False), "proven", ""),
    ],
)
async def test_version_that_may_not_be_activated_at_once_says_why_it_needs_approval(
    office: Office, made: BuiltTeam, state: str, approval: str
) -> None:
    done = await office.store.publish(await office.build("crew"), made)

    assert (done.state, done.epoch, await office.states()) == (state, None, [state])
    assert approval in done.approval
    assert bool(approval) == bool(done.approval)


async def test_tool_that_was_not_there_at_the_proof_needs_approval(office: Office) -> None:
    await office.epoch(web_fetch=Effect.READ)

    done = await office.store.publish(await office.build("crew"), of_a_whole_server())

    assert (done.state, done.tools) == ("proven", ("web.fetch", SEARCH))
    assert "not there when it was proved: web.fetch" in done.approval


async def test_repeated_publication_stores_and_activates_once(office: Office) -> None:
    origin = await office.build("crew")
    first = await office.store.publish(origin, built(spec()))
    await office.epoch(web_fetch=Effect.READ)

    again = await office.store.publish(origin, built(spec()))

    assert again == first
    assert await office.states() == ["active"]
    assert [action for action in await office.actions() if action.startswith("team.")] == [
        *("team.build", "team.prove", "team.activate"),
    ]


async def test_repeated_publication_of_a_version_that_was_archived_meanwhile_changes_nothing(office: Office) -> None:
    origin = await office.build("crew")
    await office.store.publish(origin, built(spec()))
    await office.services.teams.archive(OWNER, "crew", ACTOR)

    again = await office.store.publish(origin, built(spec()))

    assert (again.state, again.epoch, again.approval) == ("proven", None, "")
    assert await office.states() == ["archived"]


async def test_publication_under_a_lost_lease_stores_nothing(office: Office) -> None:
    origin = await office.build("crew")
    stale = replace(origin, fence=origin.fence - 1)

    for store in (
        office.store.publish(stale, built(spec())),
        office.store.publish(replace(origin, caller=replace(OWNER, tenant="elsewhere")), built(spec())),
    ):
        with pytest.raises(LeaseLostError):
            await store
    async with office.services.storage.engine.begin() as connection:
        await connection.execute(update(runs).values(ended_at=func.now(), status="cancelled"))
    with pytest.raises(LeaseLostError):
        await office.store.publish(origin, built(spec()))

    async with office.services.storage.engine.connect() as connection:
        assert (await connection.execute(select(workflows))).all() == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("revoked", "was revoked"),
        ("expired", "has expired"),
        ("scopes", "lacks the scope teams"),
        ("tenant off", "The tenant default is switched off: Closed."),
        ("architect off", "The agent architect is switched off: Closed."),
    ],
)
async def test_build_whose_caller_may_not_change_teams_any_more_stores_proves_and_activates_nothing(
    office: Office, change: str, says: str
) -> None:
    ready = await office.build("ready")
    published = await office.store.publish(ready, built(spec("ready", ADD)))
    origin = await office.build("crew")
    version = await office.store.version(OWNER, "ready", None)
    await office.forbid(change)

    for refused in (
        office.store.publish(origin, built(spec())),
        office.store.add_proof(ready, version, proof(version.spec, "failed")),
        office.store.activate(ready, published, Approval(approved=True, by="local")),
    ):
        with pytest.raises(ForbiddenError, match=says):
            await refused

    assert await office.states("ready") == ["proven"]
    async with office.services.storage.engine.connect() as connection:
        assert await connection.scalar(select(func.count()).select_from(workflows)) == 1


async def test_build_of_a_run_that_is_to_be_cancelled_stores_nothing(office: Office) -> None:
    origin = await office.build("crew")
    assert await office.services.runs.cancellation.cancel(RunKey("default", origin.run_id)) is not None

    with pytest.raises(RunCancelledError):
        await office.store.publish(origin, built(spec()))


async def test_name_that_the_designer_chose_gets_a_suffix_where_it_is_taken(office: Office) -> None:
    await office.import_team(spec("crew"))
    await office.services.agents.create(OWNER, LLMAgentConfig(id="crew_2"), ACTOR)
    await office.build("crew_3")
    origin = await office.build()

    done = await office.store.publish(origin, built(spec("crew")))
    again = await office.store.publish(origin, built(spec("crew")))

    assert (done.name, done.version, done.state) == ("crew_4", 1, "active")
    assert again == done
    report = await office.services.teams.proof("default", "crew_4", 1)
    assert report.spec_hash == done.hash == spec("crew_4").hash


async def test_task_of_a_run_that_is_no_build_publishes_a_team_under_a_free_name(office: Office) -> None:
    await office.build("crew")
    accepted = await office.services.runs.acceptance.accept(OWNER, RunRequest("Build me a team.", "thread"))

    done = await office.store.publish(await office.claimed(OWNER, accepted.key), built(spec("crew")))

    assert (done.name, done.version) == ("crew_2", 1)


async def test_version_is_published_as_the_next_one_of_its_team(office: Office) -> None:
    await office.import_team(spec("crew"))
    await office.services.teams.activate(OWNER, "crew", None, ACTOR)

    done = await office.store.publish(await office.change("crew"), built(spec("crew", LOG)))

    assert (done.name, done.version, done.state) == ("crew", 2, "active")
    assert await office.states() == ["superseded", "active"]


@pytest.mark.parametrize(
    ("caller", "made", "rule"),
    [
        (LIMITED, built(spec("crew", ADD)), "caller_grant"),
        (OWNER, built(spec("crew", "nothing.at_all")), "unknown_server"),
    ],
)
async def test_team_that_fails_a_check_is_not_published(
    office: Office, caller: Principal, made: BuiltTeam, rule: str
) -> None:
    origin = await office.build("crew", caller)

    with pytest.raises(TeamInvalidError) as refused:
        await office.store.publish(origin, made)

    assert rule in {finding.rule for finding in refused.value.findings}


async def test_published_team_calls_only_what_its_caller_may_call(office: Office) -> None:
    await office.epoch(web_fetch=Effect.READ)

    done = await office.store.publish(await office.build("crew", LIMITED), of_a_whole_server())

    assert (done.state, done.tools) == ("active", (SEARCH,))


async def test_team_beyond_the_quota_is_not_published(office: Office) -> None:
    origin = await office.build("crew")
    for name in ("one", "two", "three"):
        await office.import_team(spec(name))

    with pytest.raises(QuotaExceededError):
        await office.store.publish(origin, built(spec()))


@pytest.mark.parametrize(("state", "after"), [("proven", "proven"), ("unproven", "unproven"), ("failed", "draft")])
async def test_proof_of_a_version_gives_it_its_state(office: Office, state: ProofState, after: str) -> None:
    await office.import_team(spec())
    assert await office.states() == ["draft"]
    origin = await office.prove("crew")
    version = await office.store.version(OWNER, "crew", None)

    done, counts = await office.store.add_proof(origin, version, proof(version.spec, state, origin.run_id))
    again, _ = await office.store.add_proof(origin, version, proof(version.spec, state, origin.run_id))

    assert done == again
    assert (done.state, counts, await office.states()) == (after, True, [after])
    assert [action for action in await office.actions() if action.startswith("team.")] == ["team.import", "team.prove"]


@pytest.mark.parametrize("state", ["active", "superseded", "archived"])
async def test_proof_of_a_version_that_was_active_changes_its_proof_and_not_its_state(
    office: Office, state: str
) -> None:
    await office.import_team(spec())
    await office.services.teams.activate(OWNER, "crew", None, ACTOR)
    if state == "superseded":
        await office.import_team(spec("crew", LOG))
        await office.services.teams.activate(OWNER, "crew", None, ACTOR)
    elif state == "archived":
        await office.services.teams.archive(OWNER, "crew", ACTOR)
    origin, version = await office.prove("crew", 1), await office.store.version(OWNER, "crew", 1)

    await office.store.add_proof(origin, version, proof(version.spec, "failed"))

    first = (await office.services.teams.versions("default", "crew"))[0]
    assert first.proof
    assert (first.state, first.proof.state) == (state, "failed")


@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize(
    ("caller", "after"),
    [
        pytest.param(replace(OWNER, scopes=BUILDER), "failed", id="maker"),
        pytest.param(LIMITED, "failed", id="admin"),
        pytest.param(replace(LIMITED, scopes=BUILDER), "proven", id="another-key"),
    ],
)
async def test_further_case_that_fails_lowers_a_version_of_the_maker_or_of_an_admin_only(
    office: Office, caller: Principal, after: ProofState, active: bool
) -> None:
    case = BuildCase.model_validate({"input": "Find it.", "must_call": [SEARCH]})
    origin = await office.build("crew", cases=(case,))
    done = await office.store.publish(origin, built(spec(), activate=active))
    version = await office.store.version(OWNER, "crew", None)

    shown, counts = await office.store.add_proof(replace(origin, caller=caller), version, proof(version.spec, "failed"))
    (stored,) = await office.services.teams.versions("default", "crew")

    assert stored.proof
    assert (stored.proof.state, counts) == (after, after == "failed")
    assert stored.state == shown.state == (done.state if active or after == "proven" else "draft")


async def test_proof_under_a_lost_lease_is_not_stored(office: Office) -> None:
    await office.import_team(spec())
    origin, version = await office.prove("crew"), await office.store.version(OWNER, "crew", None)

    with pytest.raises(LeaseLostError):
        await office.store.add_proof(replace(origin, fence=9), version, proof(version.spec))

    assert await office.states() == ["draft"]


async def test_approved_activation_gives_the_tools_of_creator_and_approver_once(office: Office) -> None:
    origin = await office.build("crew")
    published = await office.store.publish(origin, built(spec("crew", LOG, ADD), "unproven"))
    by = await office.admin_key(grant=Grant(servers=frozenset({"git"})))

    done = await office.store.activate(origin, published, Approval(approved=True, by=by, note="Fine."))
    again = await office.store.activate(origin, published, Approval(approved=True, by=by, note="Fine."))

    assert done == again
    assert (done.state, done.tools, done.epoch) == (
        "active",
        (LOG, ADD),
        await office.services.storage.epochs.active_number(),
    )
    changes = (await office.services.teams.history("default", "crew")).changes
    assert (changes[-1].action, changes[-1].by, changes[-1].detail["note"]) == ("team.activate", by, "Fine.")
    assert [one.action for one in changes].count("team.activate") == 1


@pytest.mark.parametrize("fault", ["refused", "revoked", "unknown", "no admin", "other tenant"])
async def test_activation_without_an_approval_that_still_holds_is_refused(office: Office, fault: str) -> None:
    origin = await office.build("crew")
    published = await office.store.publish(origin, built(spec("crew", ADD)))
    keys = office.services.storage.keys
    by = await office.admin_key(*([Scope.TEAMS] if fault == "no admin" else [Scope.ADMIN]))
    if fault == "revoked":
        await keys.revoke(HOST_ADMIN, by, ACTOR)
    elif fault == "unknown":
        by = origin.run_id
    elif fault == "other tenant":
        by = (await keys.create(HOST_ADMIN, KeySpec("a", "elsewhere", frozenset({Scope.ADMIN})), ACTOR))[0].id

    with pytest.raises(ConflictError):
        await office.store.activate(origin, published, Approval(approved=fault != "refused", by=by))

    assert await office.states() == ["proven"]


async def test_approval_of_the_local_user_holds(office: Office) -> None:
    origin = await office.build("crew")
    published = await office.store.publish(origin, built(spec("crew", ADD)))

    done = await office.store.activate(origin, published, Approval(approved=True, by="local"))

    assert done.state == "active"


async def test_approved_version_with_tools_that_were_not_approved_is_not_activated(office: Office) -> None:
    origin = await office.build("crew")
    published = await office.store.publish(origin, of_a_whole_server("unproven"))
    await office.epoch(web_delete=Effect.UNSAFE)

    with pytest.raises(ConflictError, match=r"web\.delete"):
        await office.store.activate(origin, published, Approval(approved=True, by="local"))

    assert await office.states() == ["unproven"]


async def test_approved_version_whose_tool_may_change_something_meanwhile_is_not_activated(office: Office) -> None:
    origin = await office.build("crew")
    published = await office.store.publish(origin, built(spec("crew"), "unproven"))
    await office.epoch(web_search=Effect.UNSAFE)

    with pytest.raises(ConflictError, match=r"can't be taken back: web\.search"):
        await office.store.activate(origin, published, Approval(approved=True, by="local"))

    assert await office.states() == ["unproven"]


@pytest.mark.parametrize("change", ["archived", "superseded", "failed"])
async def test_approved_version_that_changed_meanwhile_is_not_activated(office: Office, change: str) -> None:
    origin = await office.build("crew")
    published = await office.store.publish(origin, built(spec("crew", ADD)))
    if change == "failed":
        version = await office.store.version(OWNER, "crew", None)
        await office.store.add_proof(origin, version, proof(version.spec, "failed"))
    else:
        async with office.services.storage.engine.begin() as connection:
            await connection.execute(update(workflows).values(state=change))

    with pytest.raises(ConflictError):
        await office.store.activate(origin, published, Approval(approved=True, by="local"))


async def test_admin_activates_what_is_unproven_and_not_what_failed_and_hears_what_is_in_doubt(
    office: Office,
) -> None:
    shown = proof(spec(), "unproven", web_search="1" * 64).model_copy(update={"parts": (PartReport(part="Sing."),)})
    await office.store.publish(await office.build("crew"), BuiltTeam(spec(), "Find things.", shown, activate=True))
    await office.store.publish(await office.build("crew_2"), built(spec("crew_2"), "failed"))

    listed = (await office.services.teams.list(OWNER)).teams
    done = await office.services.teams.activate(OWNER, "crew", None, ACTOR)
    with pytest.raises(ConflictError, match="last proof") as refused:
        await office.services.teams.activate(OWNER, "crew_2", None, ACTOR)
    shown = await office.services.teams.show(OWNER, "crew")
    (version,) = await office.services.teams.versions(OWNER.tenant, "crew")

    assert done.not_judged == ["No case tried the part 'Sing.' by live results."]
    assert [one.outdated_tools for one in (*listed, done, shown, version)] == [(SEARCH,), (), *3 * [(SEARCH,)]]
    assert "starling team prove crew_2@1" in refused.value.remedy


async def test_admin_who_rolls_back_to_an_unproven_version_hears_what_nobody_judged(office: Office) -> None:
    for made in (spec(), spec("crew", LOG)):
        await office.import_team(made)
        await office.services.teams.activate(OWNER, "crew", None, ACTOR)
    shown = proof(spec(), "unproven").model_copy(update={"parts": (PartReport(part="Sing."),)})
    await office.store.add_proof(await office.prove("crew", 1), await office.store.version(OWNER, "crew", 1), shown)

    back = await office.services.teams.rollback(OWNER, "crew", ACTOR)

    assert back.not_judged == ["No case tried the part 'Sing.' by live results."]


async def test_imported_draft_whose_proof_failed_can_be_activated(office: Office) -> None:
    await office.import_team(spec())
    origin, version = await office.prove("crew"), await office.store.version(OWNER, "crew", None)
    await office.store.add_proof(origin, version, proof(version.spec, "failed"))

    assert (await office.services.teams.activate(OWNER, "crew", None, ACTOR)).version == 1


async def test_world_of_a_build_has_the_limits_of_runs(office: Office) -> None:
    world = await office.store.world(LIMITED)

    assert (world.grant, world.limits.seconds, world.limits.tokens) == (LIMITED.grant, 300, 200_000)


async def test_concurrent_publications_of_one_build_store_one_version(office: Office) -> None:
    origin = await office.build("crew")
    epoch = await office.services.storage.epochs.active_number() or 0

    done = await asyncio.gather(*(office.store.publish(origin, built(spec())) for _ in range(4)))

    assert set(done) == {done[0]}
    assert (done[0].epoch, await office.states()) == (epoch + 1, ["active"])
    async with office.services.storage.engine.connect() as connection:
        assert len((await connection.execute(select(epochs))).all()) == epoch + 1


async def test_concurrent_builds_that_chose_one_name_publish_a_team_each(office: Office) -> None:
    origins = [await office.build() for _ in range(3)]

    done = await asyncio.gather(*(office.store.publish(origin, built(spec())) for origin in origins))

    assert sorted((one.name, one.version, one.state) for one in done) == [
        ("crew", 1, "active"),
        ("crew_2", 1, "active"),
        ("crew_3", 1, "active"),
    ]
