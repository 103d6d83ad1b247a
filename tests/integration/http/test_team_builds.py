"""Builds of teams over HTTP: accepted as runs of reserved names, and what is read of versions."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest
import pytest_asyncio
from pydantic import SecretStr

from architect.team_store import BuiltTeam
from starling.app.container.database import Database
from starling.app.container.services import open_services
from starling.core.events.build_events import CriterionReport
from starling.core.ids import new_id
from starling.core.principal import Grant, Principal, Scope
from starling.core.settings.schema import Limits, Settings
from starling.core.teams.building import BuildOrigin
from starling.core.teams.proofs import CaseReport, ProofReport, TrialRecord
from starling.core.teams.spec import TeamSpec
from starling.infra.postgres.runs.acceptance import RunKey
from tests.integration.http.conftest import LiveApi
from tests.support.http_app import served_api

pytestmark = pytest.mark.asyncio(loop_scope="module")

GOAL = "Write poems about the sea."
CASE = {"input": "Write one.", "criteria": [{"id": "rhymes", "text": "It rhymes.", "kind": "judged"}]}
ASK = """
INSERT INTO interrupts (tenant, id, run_id, key, kind, path, reason, message, response_schema, call, state, expires_at)
VALUES ('default', %s, %s, %s, 'approval', 't1', 'why', 'May it?', '{}', jsonb_build_object('name', %s::text), 'open',
    now() + interval '1 day')"""
WRITER: dict[str, Any] = {"name": "writer", "role": "Writer", "goal": "Write poems."}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(module_database_url: str) -> AsyncGenerator[LiveApi]:
    """An API without a worker: runs that it accepts stay unfinished."""
    settings = Settings(
        database_url=SecretStr(module_database_url), limits=Limits(input_chars=2_000, teams_per_tenant=30)
    )
    async with (
        open_services(settings, Database(module_database_url, module_database_url)) as services,
        served_api(settings, services) as served,
    ):
        yield LiveApi(served.url, served.client, services)


async def send(
    api: LiveApi,
    path: str,
    body: Any = None,
    status: int = 202,
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    async with api.client.request(method, path, json=body, headers=headers) as response:
        assert response.status == status, await response.text()
        return await response.json() | {"location": response.headers.get("Location")}


async def build(
    api: LiveApi, status: int = 202, headers: Mapping[str, str] | None = None, **fields: Any
) -> dict[str, Any]:
    return await send(api, "/v1/teams", {"goal": GOAL, **fields}, status, headers=headers)


async def imported(api: LiveApi, name: str, status: int = 201, purpose: str = "Writes poems.") -> dict[str, Any]:
    made = {"name": name, "purpose": purpose, "members": [WRITER]}
    return await send(api, f"/v1/teams/{name}/versions", {"spec": made}, status)


async def known(api: LiveApi, name: str) -> None:
    """Store a team, unless an earlier test did."""
    made = {"name": name, "purpose": "Writes poems.", "members": [WRITER]}
    async with api.client.post(f"/v1/teams/{name}/versions", json={"spec": made}) as response:
        assert response.status in (200, 201), await response.text()


async def stored(api: LiveApi, run_id: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return input, configuration and build of a run."""
    async with api.services.storage.engine.connect() as connection:
        statement = "SELECT input, config, build FROM runs WHERE id = %s"
        row: Any = (await connection.exec_driver_sql(statement, (run_id,))).one()
        return row.input, row.config, row.build


async def test_build_is_accepted_as_a_run_of_the_architect_on_a_thread_of_its_own(api: LiveApi) -> None:
    accepted = await build(
        api, goal=f"  {GOAL} ", name="poets", constraints={"members": 3}, cases=[CASE], activate=False, partial=True
    )

    run = await send(api, accepted["location"], status=200, method="GET")
    assert (run["run_id"], run["input"], run["status"]) == (accepted["run_id"], GOAL, "queued")
    assert accepted["thread_id"] == accepted["run_id"]
    text, config, made = await stored(api, accepted["run_id"])
    assert (text, config["agent"]) == (GOAL, "architect")
    assert (made["kind"], made["goal"], made["name"], made["activate"], made["partial"]) == (
        *("team", GOAL, "poets", False, True),
    )
    assert (made["constraints"]["members"], made["cases"][0]["criteria"][0]["id"]) == (3, "rhymes")


async def test_concurrent_builds_of_one_name_leave_one_accepted(api: LiveApi) -> None:
    async def status(_: int) -> int:
        async with api.client.post("/v1/teams", json={"goal": GOAL, "name": "rivals"}) as response:
            return response.status

    answers = await asyncio.gather(*map(status, range(20)))

    assert Counter(answers) == {202: 1, 409: 19}


async def test_name_is_reserved_for_builds_imports_and_agents_until_its_run_ends(api: LiveApi) -> None:
    accepted = await build(api, name="reserved")

    refused = [
        await build(api, name="reserved", status=409),
        await imported(api, "reserved", status=409),
        await send(api, "/v1/agents", {"id": "reserved"}, status=409),
    ]
    await build(api, name="reserved_too")
    elsewhere = await api.key(*Scope, tenant="elsewhere")
    await send(api, "/v1/teams", {"goal": GOAL, "name": "reserved"}, headers=elsewhere)
    await send(api, f"/v1/runs/{accepted['run_id']}/cancel", {}, status=200)

    assert all(accepted["run_id"] in one["detail"] for one in refused)
    assert (await imported(api, "reserved"))["version"] == 1


async def test_new_team_with_the_name_of_a_stored_one_is_refused_also_if_that_is_archived(api: LiveApi) -> None:
    await imported(api, "present")
    await imported(api, "gone")
    await send(api, "/v1/teams/gone/archive", status=200)

    refused = [await build(api, name=name, status=409) for name in ("present", "gone")]

    assert ["/v1/teams/present/versions" in one["remedy"] for one in refused] == [True, False]
    assert {one["code"] for one in refused} == {"conflict"}


@pytest.mark.parametrize(
    "name", ["architect", "generalist", "general_ist", "mcp-agent-git", "teller", "mcp_agent_x", "A"]
)
async def test_name_of_another_agent_or_of_the_platform_is_refused_at_once(api: LiveApi, name: str) -> None:
    await send(api, "/v1/agents", {"id": "teller", "behavior_template": "Tell."}, status=201)

    refused = await build(api, name=name, status=422)

    assert refused["errors"]


@pytest.mark.parametrize("goal", ["", " \n ", "a" * 2_001, "🤖🌊", "Write\x00poems.", None, 3])
async def test_unusable_goal_is_refused(api: LiveApi, goal: Any) -> None:
    await known(api, "goals")
    for path in ("/v1/teams", "/v1/teams/goals/versions"):
        refused = await send(api, path, {"goal": goal}, status=422)
        assert "goal" in refused["detail"] or "goal" in str(refused["errors"])


async def test_goal_with_emoji_is_stored_as_it_is_on_the_thread_that_is_named(api: LiveApi) -> None:
    accepted = await build(api, goal="🤖 poems 🌊", thread_id="emoji")

    text, _, made = await stored(api, accepted["run_id"])
    assert text == made["goal"] == "🤖 poems 🌊"
    assert accepted["thread_id"] == "emoji"


async def test_repeated_build_with_its_idempotency_key_is_the_same_run(api: LiveApi) -> None:
    order = {"Idempotency-Key": new_id()}

    first, again = [await build(api, name="once", headers=order) for _ in range(2)]
    other = await build(api, name="once", partial=True, status=422, headers=order)

    assert first["run_id"] == again["run_id"]
    assert other["code"] == "idempotency_key_reused"


async def test_build_on_a_thread_that_waits_for_an_answer_is_a_run_of_its_own(api: LiveApi) -> None:
    first = await build(api, thread_id="busy")

    second = await build(api, thread_id="busy")

    run = await send(api, second["location"], status=200, method="GET")
    assert run["behind"]["run_id"] == first["run_id"]


async def test_version_is_built_for_a_goal_beside_the_import_of_a_spec(api: LiveApi) -> None:
    await imported(api, "growing")

    accepted = await send(api, "/v1/teams/growing/versions", {"goal": "Add rhymes.", "version": 1})

    _, _, made = await stored(api, accepted["run_id"])
    assert (made["kind"], made["name"], made["version"], made["goal"]) == ("version", "growing", 1, "Add rhymes.")
    assert accepted["run_id"] in (await imported(api, "growing", status=409, purpose="Other."))["detail"]
    await send(api, "/v1/teams/growing/versions", {"goal": "More."}, status=409)
    await send(api, "/v1/teams/growing/prove", status=409)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/teams/nothing/versions", {"goal": GOAL}, 404),
        ("/v1/teams/known/versions", {"goal": GOAL, "version": 7}, 404),
        ("/v1/teams/nothing/prove", None, 404),
        ("/v1/teams/known/prove", {"version": 7}, 404),
        ("/v1/teams/known/prove", {"goal": GOAL}, 422),
        ("/v1/teams/known/versions", {}, 422),
        ("/v1/teams/known/versions", {"goal": GOAL, "spec": {}}, 422),
        ("/v1/teams/known/versions", {"spec": {}, "activate": True}, 422),
    ],
)
async def test_request_for_a_version_that_cannot_be_is_refused(api: LiveApi, path: str, body: Any, status: int) -> None:
    await known(api, "known")

    await send(api, path, body, status=status)


async def test_proof_is_a_run_that_lets_other_specs_be_imported(api: LiveApi) -> None:
    await imported(api, "tried")
    await imported(api, "tried", purpose="Writes more poems.")

    accepted = await send(api, "/v1/teams/tried/prove", {"cases": [CASE]})

    text, config, made = await stored(api, accepted["run_id"])
    assert (text, config["agent"]) == ("Prove the team tried@2.", "architect")
    assert (made["kind"], made["name"], made["version"], made["goal"]) == ("proof", "tried", 2, "")
    await send(api, "/v1/teams/tried/prove", status=409)
    assert (await imported(api, "tried", purpose="Writes all poems."))["version"] == 3


@pytest.mark.parametrize("path", ["/v1/teams", "/v1/teams/cased/versions", "/v1/teams/cased/prove"])
async def test_case_that_no_team_could_be_tried_on_is_refused_with_its_place(api: LiveApi, path: str) -> None:
    await known(api, "cased")
    goal = {} if path.endswith("prove") else {"goal": GOAL}

    refused = await send(api, path, {**goal, "cases": [CASE, {**CASE, "must_call": ["git.log"]}]}, status=422)

    assert (refused["code"], refused["detail"]) == ("team_invalid", "The cases that were sent are wrong.")
    assert [(one["path"], one["rule"]) for one in refused["errors"]] == [("cases[1].must_call[0]", "unknown_tool")]


async def test_key_that_could_not_follow_its_build_begins_none(api: LiveApi) -> None:
    refused = await send(api, "/v1/teams", {"goal": GOAL}, status=403, headers=await api.key(Scope.TEAMS))

    assert "lacks the scope 'run'" in refused["detail"]


async def test_build_with_an_unknown_server_is_refused_at_once(api: LiveApi) -> None:
    wanted = {"goal": GOAL, "constraints": {"servers": ["nope"]}}

    refused = await send(api, "/v1/teams", wanted, status=422, headers=await api.key(Scope.RUN, Scope.TEAMS))

    assert "There is no server 'nope'" in refused["detail"]


async def test_tenant_has_a_limited_number_of_teams_that_are_not_archived(api: LiveApi) -> None:
    mine = await api.key(*Scope, tenant="crowd")
    order = mine | {"Idempotency-Key": new_id()}

    async def add(name: str, status: int = 201, purpose: str = "Writes poems.") -> dict[str, Any]:
        made = {"spec": {"name": name, "purpose": purpose, "members": [WRITER]}}
        return await send(api, f"/v1/teams/{name}/versions", made, status, headers=mine)

    first = await build(api, headers=order)
    for number in range(30):
        await add(f"team_{number}")

    refused = [await add("extra", status=409), await build(api, status=409, headers=mine)]
    repeated = await build(api, headers=order)
    await add("team_0", purpose="Writes odes.")
    await send(api, "/v1/teams/team_0/archive", status=200, headers=mine)
    await add("extra")
    refused.append(await send(api, "/v1/teams/team_0/activate", status=409, headers=mine))

    assert {one["code"] for one in refused} == {"quota_exceeded"}
    assert "limits.teams_per_tenant" in refused[0]["remedy"]
    assert repeated["run_id"] == first["run_id"]


async def asked(api: LiveApi, run_id: str, call: str) -> str:
    """Have a run ask for the approval of a call; return the id of the interrupt."""
    interrupt = new_id()
    async with api.services.storage.engine.begin() as connection:
        await connection.exec_driver_sql(ASK, (interrupt, run_id, interrupt, call))
    return interrupt


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("status", ["resolved", "cancelled"])
async def test_activation_of_a_team_is_decided_by_a_key_with_the_scope_admin(
    api: LiveApi, several: bool, status: str
) -> None:
    run_id = (await build(api))["run_id"]
    interrupt = await asked(api, run_id, "architect.activate_team")
    one = {"status": status, "payload": {"approved": True}}
    path = f"/v1/runs/{run_id}/resume" if several else f"/v1/approvals/{interrupt}"
    body: Any = [{"interruptId": interrupt, **one}] if several else one
    maker, admin = await api.key(Scope.RUN, Scope.TEAMS), await api.key(Scope.RUN, Scope.ADMIN, grant=Grant())

    refused = await send(api, path, body, status=403, headers=maker)
    waits = await send(api, path, body, headers=admin)

    assert "'admin'" in refused["detail"]
    assert waits["interrupts"] == []
    assert (await api.services.runs.interrupts.one("default", interrupt)).answered_by == await key_id(api, admin)


async def test_approval_of_another_call_needs_no_scope_admin(api: LiveApi) -> None:
    interrupt = await asked(api, (await build(api))["run_id"], "architect.activate_teams")
    maker = await api.key(Scope.RUN)

    await send(api, f"/v1/approvals/{interrupt}", {"status": "resolved", "payload": {"approved": True}}, headers=maker)

    assert (await api.services.runs.interrupts.one("default", interrupt)).state == "resolved"


async def test_question_of_a_build_is_answered_by_a_key_with_the_scope_teams(api: LiveApi) -> None:
    run_id = (await build(api, thread_id="asks"))["run_id"]
    interrupt = await asked(api, run_id, "")
    async with api.services.storage.engine.begin() as connection:
        await connection.exec_driver_sql(
            "UPDATE interrupts SET kind = 'clarification', path = 't1.question', call = NULL WHERE id = %s",
            (interrupt,),
        )
        await connection.exec_driver_sql("UPDATE runs SET status = 'waiting' WHERE id = %s", (run_id,))
    outsider, maker = await api.key(Scope.RUN), await api.key(Scope.RUN, Scope.TEAMS)
    answer = [{"interruptId": interrupt, "status": "resolved", "payload": {"answer": "The disks."}}]
    message = {"input": "The disks.", "thread_id": "asks"}

    refused = await send(api, f"/v1/runs/{run_id}/resume", answer, status=403, headers=outsider)
    apart = await send(api, "/v1/runs", message, status=202, headers=outsider)
    answered = await send(api, "/v1/runs", message, status=202, headers=maker)

    assert "'teams'" in refused["detail"]
    assert apart["run_id"] != run_id
    assert answered["run_id"] == run_id


async def key_id(api: LiveApi, header: Mapping[str, str]) -> str:
    return (await api.services.storage.keys.authenticate(header["Authorization"].removeprefix("Bearer "))).key_id


def proof_of(spec: TeamSpec, run_id: str) -> ProofReport:
    trial = TrialRecord(path="t1/case-one", reply="Waves.", tokens=12, seconds=0.5)
    criterion = CriterionReport(id="waves", met=True)
    case = CaseReport(id="one", passed=True, simulation_only=False, criteria=(criterion,), trial=trial)
    return ProofReport(
        state="proven",
        score=1.0,
        threshold=1.0,
        cases=(case,),
        spec_hash=spec.hash,
        tools={},
        run_id=run_id,
        trace_id="f" * 32,
    )


async def test_versions_proof_history_and_difference_of_a_built_team_are_shown(api: LiveApi) -> None:
    accepted = await build(api, name="shown")
    claim = await api.services.runs.leases.claim(
        RunKey("default", accepted["run_id"]), worker="test", lease_seconds=60, run_seconds=60
    )
    assert claim is not None
    owner = Principal("default", "", frozenset(Scope))
    origin = BuildOrigin(owner, claim.run.id, claim.run.fence, "t1", claim.run.trace_id, claim.run.epoch)
    made = TeamSpec.model_validate({"name": "shown", "purpose": "Writes poems.", "members": [WRITER]})
    built = BuiltTeam(made, GOAL, proof_of(made, claim.run.id), activate=True)
    await api.services.team_store.publish(origin, built)

    shown = await send(api, "/v1/teams/shown", status=200, method="GET")
    (version,) = (await send(api, "/v1/teams/shown/versions", status=200, method="GET"))["versions"]
    report = await send(api, "/v1/teams/shown/versions/1/proof", status=200, method="GET")
    changes = (await send(api, "/v1/teams/shown/history", status=200, method="GET"))["changes"]

    assert (shown["state"], shown["used_in"]) == ("active", [])
    assert (version["goal"], version["built_by"], version["state"]) == (GOAL, claim.run.id, "active")
    assert version["proof"] == {"state": "proven", "score": 1.0, "run_id": claim.run.id, "trace_id": "f" * 32}
    assert (report["cases"][0]["trial"]["tokens"], report["cases"][0]["criteria"][0]["id"]) == (12, "waves")
    assert [(one["action"], one["by"], one["origin"], one["detail"]["version"]) for one in changes] == [
        ("team.build", "local", "architect", 1),
        ("team.prove", "local", "architect", 1),
        ("team.activate", "local", "architect", 1),
    ]
    assert "tenant" not in changes[0]["detail"]


async def test_difference_between_two_versions_is_shown_as_text_and_by_paths(api: LiveApi) -> None:
    await imported(api, "changing")
    await imported(api, "changing", purpose="Writes odes.")
    await imported(api, "changing", purpose="Writes all.")

    async def diff(query: str, status: int = 200) -> dict[str, Any]:
        return await send(api, f"/v1/teams/changing/diff{query}", status=status, method="GET")

    newest, chosen, back = await diff(""), await diff("?from=1&to=2"), await diff("?from=3&to=1")

    assert [(one["from"], one["to"]) for one in (newest, chosen, back)] == [(2, 3), (1, 2), (3, 1)]
    assert {tuple(one["paths"]) for one in (newest, chosen, back)} == {("purpose",)}
    assert chosen["diff"].splitlines()[:2] == ["--- changing@1", "+++ changing@2"]
    assert {"-purpose: Writes poems.", "+purpose: Writes odes."} <= set(chosen["diff"].splitlines())
    nothing_before, unknown = await diff("?to=1", status=404), await diff("?to=9", status=404)
    assert nothing_before["detail"] == "There is no version before 1 of the team 'changing'."
    assert nothing_before["remedy"] == "changing has 3 versions; a comparison needs two."
    assert unknown["detail"] == "There is no version 9 of the team 'changing'."
    await diff("?to=0", status=422)


@pytest.mark.parametrize(
    "path",
    [
        "unread/versions/1/proof",
        "unread/versions/2/proof",
    ],
)
async def test_what_there_is_not_of_a_team_is_not_found(api: LiveApi, path: str) -> None:
    await known(api, "unread")

    refused = await send(api, f"/v1/teams/{path}", status=404, method="GET")

    assert refused["code"] == "not_found"


async def test_history_of_a_tenant_names_no_changes_of_another(api: LiveApi) -> None:
    elsewhere = await api.key(*Scope, tenant="elsewhere")
    made = {"name": "alike", "purpose": "Writes poems.", "members": [WRITER]}
    for headers in ({}, elsewhere):
        await send(api, "/v1/teams/alike/versions", {"spec": made}, status=201, headers=headers)

    (change,) = (await send(api, "/v1/teams/alike/history", status=200, method="GET", headers=elsewhere))["changes"]

    assert (change["action"], change["by"]) == ("team.import", await key_id(api, elsewhere))


async def test_team_names_the_active_teams_that_have_it_inside(api: LiveApi) -> None:
    await imported(api, "inner")
    await send(api, "/v1/teams/inner/activate", status=200)
    outer = {"name": "outer", "purpose": "Uses it.", "members": [{**WRITER, "name": "inside", "team": "inner"}]}
    await send(api, "/v1/teams/outer/versions", {"spec": outer}, status=201)
    await send(api, "/v1/teams/outer/activate", status=200)

    shown = await send(api, "/v1/teams/inner", status=200, method="GET")

    assert shown["used_in"] == ["outer@1"]
