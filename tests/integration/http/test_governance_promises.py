"""What the governance table promises, as an admin and a caller see it over HTTP and by commands."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from starling.core.agents import Persona
from starling.core.principal import Scope
from starling.core.teams.stars import Member, StarSpec
from tests.support.command_line import new_workspace
from tests.support.effect_recorder import AGENT
from tests.support.governed_platform import CHARGE, OTHER, READ, ROLES, Governed, governed_api
from tests.support.local_access import TOKEN
from tests.support.model_script import Answer
from tests.support.platform import activate_team, calls, decision, task, verdict

pytestmark = pytest.mark.asyncio(loop_scope="module")

RUNTIMES = ["native", "crewai"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def platform(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Governed]:
    async with governed_api(module_database_url, tmp_path_factory.mktemp("governed")) as platform:
        yield platform


@pytest_asyncio.fixture(loop_scope="module")
async def api(platform: Governed) -> AsyncGenerator[Governed]:
    """The platform with the default table, and nothing done or scripted yet."""
    platform.forget()
    yield platform
    await platform.govern()


# The table


async def test_default_table_is_that_of_the_guide(api: Governed) -> None:
    cells = (await api.get("/v1/governance"))["cells"]

    assert len(cells) == 9
    assert {cell for cell, row in cells.items() if row.get("direct_agent") == "coder"} == {
        f"{mode}/CODE_TASK" for mode in ("CONSERVATIVE", "MODERATE", "EXPLORATORY")
    }
    assert {cell for cell, row in cells.items() if row.get("effects") == ["read"]} == {
        f"CONSERVATIVE/{channel}" for channel in ("CHAT", "CODE_TASK", "SYSTEM_HEALTH")
    }


@pytest.mark.parametrize(
    ("table", "where"),
    [
        ({"modes": {"RECKLESS": {}}}, "RECKLESS"),
        ({"tenants": {"acme": {"modes": {"MODERATE": {"seconds": 0}}}}}, "acme"),
        ({"modes": {"MODERATE": {"roles": []}}}, "roles"),
        ({"modes": {"MODERATE": {"tools": ["nowhere.*"]}}}, "nowhere"),
        ({"modes": {"MODERATE": {"tools": ["effects.nothing"]}}}, "effects.nothing"),
        ({"modes": {"MODERATE": {"direct_agent": "nobody_there"}}}, "nobody_there"),
        ({"modes": {"MODERATE": {"roles": ["router"]}}, "channels": {"CHAT": {"roles": ["coding"]}}}, "/CHAT"),
    ],
)
async def test_fault_is_named_with_its_place_and_a_reload_with_it_changes_nothing(
    api: Governed, table: dict[str, Any], where: str
) -> None:
    before = await api.get("/v1/governance")

    async with api.client.post("/v1/governance/check", json=table) as response:
        checked = await response.json()
        named = checked["faults"] if response.status == 200 else checked
    refused = await api.govern(422, **table)

    assert where in str(named), checked
    assert where in str(refused)
    assert await api.get("/v1/governance") == before


async def test_name_that_stands_twice_is_refused_over_http(api: Governed) -> None:
    """The last one would hold silently, and it may be the wider one."""
    table = '{"modes": {"MODERATE": {"seconds": 5, "seconds": 500}}}'
    whole = f'{{"governance": {table}}}'
    for path, body in (("governance/check", table), ("registry/reload", whole), ("registry/plan", whole)):
        said = await api.post(f"/v1/{path}", 422, data=body, headers={"content-type": "application/json"})
        assert "seconds" in said["detail"]


@pytest.mark.parametrize(
    "text",
    [
        b"\x00\xff\xfe\x80",
        b"governance: [",
        b"governance: {modes: {MODERATE: {seconds: 5}, MODERATE: {seconds: 500}}}",
        b"governance: {modes: {MODERATE: {seconds: 5, seconds: 500}}}",
        b"governance: &a {modes: *a}",
        b"governance: no",
        b"governance: 7",
        b"governance: {modes: {MODERATE: {temperature: .nan}}}",
        b"governance: {modes: {MODERATE: {seconds: .inf}}}",
        b"governance: {modes: {MODERATE: {tools: !!python/object/apply:os.system [id]}}}",
        b"governence: {modes: {}}",
        b"governance: " + b"[" * 3000 + b"]" * 3000,
        b"- governance",
    ],
)
async def test_garbage_file_ends_the_check_with_2_and_a_reason(api: Governed, text: bytes) -> None:
    with new_workspace(STARLING_URL=api.url, STARLING_API_KEY=TOKEN) as workspace:
        (workspace.folder / "bounds.yaml").write_bytes(text)
        done = await asyncio.to_thread(workspace.starling, "governance", "check", "bounds.yaml")
        reloaded = await asyncio.to_thread(workspace.starling, "--settings", "bounds.yaml", "registry", "reload")

    assert done.returncode == 2, done
    assert done.stderr.strip()
    assert "Traceback" not in done.stderr
    assert reloaded.returncode == 2, reloaded


async def test_name_that_stands_twice_in_the_variable_is_refused(api: Governed) -> None:
    twice = '{"modes": {"MODERATE": {"seconds": 5, "seconds": 500}}}'
    with new_workspace(STARLING_URL=api.url, STARLING_API_KEY=TOKEN, STARLING_GOVERNANCE=twice) as workspace:
        done = await asyncio.to_thread(workspace.starling, "registry", "reload")

    assert (done.returncode, "STARLING_GOVERNANCE" in done.stderr, "seconds" in done.stderr) == (2, True, True)


async def test_tenant_with_wider_rows_gets_nothing_and_check_says_so(api: Governed) -> None:
    wide: dict[str, Any] = {
        "effects": ["read", "unsafe"], "tools": ["effects.*", "other.*"], "seconds": 200, "max_tokens": 4000,
        "approval": "never", "iterations": 9, "roles": ["router", "reasoning", "coding"],
    }  # fmt: skip
    narrow: dict[str, Any] = {
        "effects": ["read"], "tools": ["effects.*"], "seconds": 20, "max_tokens": 400, "approval": "always",
        "iterations": 1, "roles": ["router"], "default_role": "router",
    }  # fmt: skip
    table: dict[str, Any] = {"modes": {"MODERATE": narrow}, "tenants": {"acme": {"modes": {"MODERATE": wide}}}}

    checked = await api.check(**table)
    done = await api.govern(**table)

    assert checked["faults"] == []
    for member in wide:
        assert f"tenants.acme.modes.MODERATE.{member}" in str(checked["warnings"]), member
    assert "acme" in str(done["governance_warnings"])
    assert await api.row("MODERATE/CHAT", "acme") == await api.row("MODERATE/CHAT")


async def test_cell_of_a_tenant_narrows_its_own_channel_too_and_lifts_nothing_of_all(api: Governed) -> None:
    cell = {"effects": ["read", "idempotent", "unsafe"], "direct_agent": ""}
    await api.govern(tenants={"acme": {"cells": {"CONSERVATIVE/CODE_TASK": cell}}})

    row = await api.row("CONSERVATIVE/CODE_TASK", "acme")

    assert row["effects"] == ["read"]
    assert row.get("direct_agent", "") == ""  # a plan is allowed less, not more
    assert (await api.row("CONSERVATIVE/CODE_TASK"))["direct_agent"] == "coder"


@pytest.mark.parametrize("scopes", [(Scope.RUN,), (Scope.TEAMS,), (Scope.SERVICE,), ()])
async def test_table_is_the_admins(api: Governed, scopes: tuple[Scope, ...]) -> None:
    key = await api.key(*(scopes or (Scope.RUN,)), tenant="acme")

    await api.get("/v1/governance", 403, headers=key)
    await api.post("/v1/governance/check", 403, json={}, headers=key)
    await api.post("/v1/registry/reload", 403, json={"governance": {}}, headers=key)


# What it enforces


async def test_no_model_of_a_forbidden_role_is_asked_not_even_in_place_of_one_that_fails(api: Governed) -> None:
    await api.govern(modes={"MODERATE": {"roles": ["reasoning"], "default_role": "reasoning"}})
    api.one_task(Answer(status=500, body="{}"))

    done = await api.do()

    assert api.models == {"big", "big-chief"}
    assert done["status"] == "failed"


@pytest.mark.parametrize("role", ["router", "reasoning", "coding"])
async def test_forbidden_roles_are_replaced_by_the_default_role(api: Governed, role: str) -> None:
    await api.govern(modes={"MODERATE": {"roles": [role], "default_role": role}})
    api.one_task(READ)

    done = await api.do()

    assert done["status"] == "succeeded"
    assert api.models - {"big-chief"} == {ROLES[f"model_{role}"]}
    assert ("big-chief" in api.models) == (role == "reasoning")


async def test_default_role_that_is_not_allowed_is_not_asked(api: Governed) -> None:
    await api.govern(modes={"MODERATE": {"roles": ["router"], "default_role": "coding"}})
    api.one_task(READ)

    await api.do()

    assert api.models <= {"small"}


BOUNDS: list[dict[str, Any]] = [{"effects": ["read"]}, {"tools": ["effects.read_it", "other.read_it"]}]


@pytest.mark.parametrize("bound", BOUNDS, ids=["effects", "tools"])
async def test_forbidden_tools_are_neither_shown_nor_called(api: Governed, bound: dict[str, Any]) -> None:
    await api.govern(modes={"MODERATE": bound})
    api.one_task(calls(("charge", {"what": "a"}), ("read_it", {"what": "b"})))

    await api.do()

    offered = {tool["function"]["name"] for body in api.model.bodies for tool in body.get("tools", ())}
    assert api.effects.done() in ([], ["read_it b"])
    assert "read_it" in offered
    assert not offered & {"charge", "put", "pay", "invoice"}


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("bound", BOUNDS, ids=["effects", "tools"])
async def test_forbidden_tools_stay_forbidden_in_teams_and_custom_agents(
    api: Governed, bound: dict[str, Any], runtime: Any
) -> None:
    runs, persona = f"{runtime}_{next(iter(bound))}", Persona(role="Clerk", goal="Do what is asked.")
    tools = ("effects.read_it", "effects.charge")
    member = Member(name="clerk", persona=persona, server="effects", tools=tools, runtime=runtime)
    await activate_team(api.services, StarSpec(name=f"office_{runs}", purpose="Does.", members=(member,)))
    config = {"id": f"alone_{runs}", "behavior_template": "You do.", "tools": list(tools), "runtime": runtime}
    await api.post("/v1/agents", 201, json=config)
    await api.govern(modes={"MODERATE": bound})
    both = decision(task("t3", f"office_{runs}"), task("t4", f"alone_{runs}"))
    api.script.supervisor(both, decision(task("t1", "clerk")))
    for name in ("t1", "t4"):
        api.script.agent(name, calls(("charge", {"what": name}), ("read_it", {"what": name})), Answer("It is read."))
    api.script.reviewer(verdict("APPROVED"))
    api.script.qa(Answer("Done [1]."))

    done = await api.do()

    assert set(api.effects.done()) <= {"read_it t1", "read_it t4"}
    working = [body for body in api.model.bodies if body.get("tools")]
    assert "charge" not in {tool["function"]["name"] for body in working for tool in body["tools"]}
    assert {name for name in ("t1", "t4") if api.asked(f'<task id="{name}">')} == {"t1", "t4"}, done


async def test_single_call_of_a_forbidden_tool_is_refused(api: Governed) -> None:
    await api.govern(cells={"MODERATE/CHAT": {"tools": ["effects.read_it"]}})

    allowed = await api.post("/execute", json={"tool_name": "effects.read_it", "arguments": {"what": "a"}})
    for tool in ("other.read_it", "effects.charge"):
        async with api.client.post("/execute", json={"tool_name": tool, "arguments": {"what": "b"}}) as response:
            refused = await response.json()
            assert response.status != 200 or refused["status"] == "error", refused

    assert allowed["status"] == "success"
    assert api.effects.done() == ["read_it a"]
    assert [tool["name"] for tool in (await api.get("/tools"))["tools"]] == ["effects.read_it"]


async def test_caller_can_not_leave_the_bounds_by_naming_an_agent(api: Governed) -> None:
    await api.govern(modes={"MODERATE": {"effects": ["read"], "tools": ["effects.*"]}})
    api.one_task(CHARGE)

    other, own = await api.do(agent=OTHER), await api.do(agent=AGENT)

    assert api.effects.done() == []
    assert (other["status"], own["status"]) == ("failed", "failed")


@pytest.mark.parametrize(("bound", "wanted", "most"), [(1, 3, 1), (3, 1, 1), (2, None, 2)])
async def test_turns_are_bounded_by_the_row_and_by_the_caller(
    api: Governed, bound: int, wanted: int | None, most: int
) -> None:
    await api.govern(modes={"MODERATE": {"iterations": bound}})
    api.one_task(*(calls(("read_it", {"what": str(turn)}), ("continue", {})) for turn in range(9)))

    await api.do(limits={} if wanted is None else {"tool_iterations": wanted})

    assert len(api.effects.done()) == most


async def test_tokens_and_temperature_are_in_each_request_to_a_model(api: Governed) -> None:
    await api.govern(modes={"MODERATE": {"max_tokens": 77, "temperature": 0.9}})
    api.one_task(READ)

    await api.do()

    sizes = {body.get("max_tokens") or body.get("max_completion_tokens") for body in api.model.bodies}
    assert sizes == {77}
    assert [body["temperature"] for body in api.asked("You supervise agents")] == [0.9]


async def test_temperature_is_the_lower_of_mode_and_channel(api: Governed) -> None:
    await api.govern(modes={"MODERATE": {"temperature": 0.1}}, channels={"CHAT": {"temperature": 0.7}})
    api.script.supervisor(decision(reply="Fine."))

    await api.do()

    assert [body["temperature"] for body in api.model.bodies] == [0.1]


async def test_run_ends_after_its_seconds_whatever_the_caller_wants(api: Governed) -> None:
    await api.govern(modes={"MODERATE": {"seconds": 2}})
    api.one_task(calls(("read_it", {"what": "a", "stall": "before", "gate": "never"})))

    async with asyncio.timeout(20):
        done = await api.do(limits={"run_seconds": 250})

    assert done["status"] == "failed"
    assert "deadline_exceeded" in str(done["steps"]) + str(done["code"]), done


@pytest.mark.parametrize(("policy", "call", "waits"), [
    ("unsafe", CHARGE, True), ("unsafe", READ, False), ("always", READ, True),
])  # fmt: skip
async def test_calls_wait_for_a_person_though_the_server_says_never(
    api: Governed, policy: str, call: Answer, *, waits: bool
) -> None:
    await api.govern(modes={"MODERATE": {"approval": policy}})
    api.one_task(call, agent=OTHER)

    done = await api.do()

    assert (done["status"] == "waiting") == waits
    assert bool(api.effects.done()) != waits


@pytest.mark.parametrize(
    ("least", "wanted", "reviews"),
    [("always", "never", 1), ("risky", "never", 0), ("never", None, 0), ("never", "always", 1), (None, "never", 0)],
)
async def test_row_says_the_least_that_is_reviewed(
    api: Governed, least: str | None, wanted: str | None, reviews: int
) -> None:
    await api.govern(modes={"MODERATE": {} if least is None else {"review": least}})
    api.one_task(READ)

    asked: dict[str, Any] = {} if wanted is None else {"reflect": wanted}
    await api.do(**asked)

    assert sum("verdict" in str(body.get("response_format")) for body in api.model.bodies) == reviews


@pytest.mark.parametrize("agent", [OTHER, ""])
async def test_direct_agent_that_can_not_work_is_replaced_by_a_plan(api: Governed, agent: str) -> None:
    """One whose tools are all forbidden, and none."""
    await api.govern(channels={"CODE_TASK": {"tools": ["effects.*"], "direct_agent": agent}})
    api.script.supervisor(decision(reply="Planned."))

    done = await api.do(channel="CODE_TASK")

    codes = [step["metadata"]["code"] for step in done["steps"] if step["type"] == "warning"]
    assert (done["status"], done["reply"]) == ("succeeded", "Planned.")
    assert ("governance" in codes) == bool(agent)


# Epochs and tenants


async def test_run_keeps_the_bounds_that_it_began_with_and_the_next_has_the_new_ones(api: Governed) -> None:
    api.one_task(CHARGE)
    api.script.held = True
    began = await api.begin()
    await api.model.received(1)
    await api.govern(modes={"MODERATE": {"effects": ["read"], "max_tokens": 50}})
    api.script.held = False
    api.model.release("1")
    first = await api.ended(began)
    charged = api.effects.done()
    second = await api.do()

    assert (first["status"], charged) == ("succeeded", ["charge a"])
    assert (second["status"], api.effects.done()) == ("failed", ["charge a"])


async def test_run_that_waits_over_a_reload_goes_on_with_its_bounds(api: Governed) -> None:
    await api.govern(modes={"MODERATE": {"approval": "unsafe"}})
    api.one_task(CHARGE)
    run = await api.begin()
    [question] = (await api.until(run, "waiting"))["interrupts"]
    await api.govern(modes={"MODERATE": {"effects": ["read"], "roles": ["router"], "default_role": "router"}})

    answer = {"interruptId": question["id"], "status": "resolved", "payload": {"approved": True}}
    await api.post(f"/v1/runs/{run}/resume", 202, json=[answer])

    assert (await api.ended(run))["status"] == "succeeded"
    assert api.effects.done() == ["charge a"]


async def test_row_of_a_tenant_binds_its_runs_alone(api: Governed) -> None:
    key = await api.key(Scope.RUN, Scope.SERVICE, tenant="acme")
    await api.govern(tenants={"acme": {"cells": {"MODERATE/CHAT": {"effects": ["read"]}}}})
    api.one_task(CHARGE)

    bound, free = await api.do(headers=key), await api.do()
    single = {"tool_name": "effects.charge", "arguments": {"what": "b"}}
    async with api.client.post("/execute", json=single, headers=key) as response:
        refused = await response.json()

    assert (bound["status"], free["status"]) == ("failed", "succeeded")
    assert refused.get("status") != "success"
    assert api.effects.done() == ["charge a"]
