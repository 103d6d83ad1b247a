"""What is switched off, and whose key was revoked, is called no more: at once, in every worker, in begun runs too."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import insert, select

from starling.app.access.keys import KeySpec
from starling.app.runs.acceptance import RunRequest
from starling.core.clock import Deadline, SystemClock
from starling.core.ids import new_id
from starling.core.principal import HOST_ADMIN, Principal, Scope
from starling.core.tools import ToolCall, ToolOutcome
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.kill_switches import Target
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.tables.access import audit, audit_events, switches
from tests.integration.brain.conftest import Open
from tests.support.model_script import Answer
from tests.support.platform import BENCH, Platform, ScriptedModel, Workbench, calls, decision, task, verdict

ADMIN = Actor.local("test")
LOOK = calls(("look", {"thing": "disk"}))
SERVER = Target("server", "bench")


async def looked(platform: Platform, server: str = "bench", **whose: Any) -> ToolOutcome:
    """Call a tool that only looks, as somebody."""
    listing = platform.worker_runtime.gateway.listing(server)
    assert listing is not None
    tool = next(tool for tool in listing.tools if tool.name == "look")
    call = ToolCall(new_id(), "run", "t1", tool, {"thing": "probe"}, **whose)
    return await platform.worker_runtime.gateway.call(call, Deadline(SystemClock(), 20))


async def answers(platform: Platform, code: str, **whose: Any) -> ToolOutcome:
    """Return once calls are answered with this code, the first outcome that was."""
    async with asyncio.timeout(60):
        while True:
            outcome = await looked(platform, **whose)
            if outcome.code == code:
                return outcome
            await asyncio.sleep(0.01)  # a call that is refused waits for nothing


async def accept(platform: Platform, key_id: str) -> RunKey:
    caller = Principal("default", key_id, frozenset(Scope))
    return (
        await platform.services.runs.acceptance.accept(caller, RunRequest(input="How is the disk?", thread_id="t"))
    ).key


async def test_calls_of_members_stop_with_any_team_that_they_are_in(platform: Platform) -> None:
    await platform.services.storage.switches.off(Target("agent", "outer"), "It lies.", ADMIN)

    refused = await answers(platform, "switched_off", agent="watcher", teams=("outer", "inner"))
    elsewhere = await looked(platform, agent="outer", teams=("inner",))

    assert refused.text.startswith("The agent outer is switched off: It lies.")
    assert elsewhere.status == "succeeded"


async def test_switched_off_server_is_called_by_no_worker(opened: Open) -> None:
    async with opened() as one, opened() as other:
        await one.services.storage.switches.off(SERVER, "It lies.", ADMIN)
        refused = [await answers(platform, "switched_off") for platform in (one, other)]
        elsewhere = await looked(one, server="shop")
        await other.services.storage.switches.on(SERVER, ADMIN)
        allowed = [await answers(platform, "") for platform in (one, other)]

    texts = {outcome.text for outcome in refused}
    assert texts == {"The server bench is switched off: It lies. The tool was not called."}
    assert [outcome.status for outcome in (elsewhere, *allowed)] == ["succeeded"] * 3


async def test_switch_whose_notification_is_lost_is_applied_by_polling(platform: Platform) -> None:
    row = {"tenant": "*", "kind": "server", "name": "bench", "reason": "It lies.", "actor": "test"}
    async with platform.services.storage.engine.begin() as connection:
        await connection.execute(insert(switches).values(row))  # which notifies nobody

    assert (await answers(platform, "switched_off")).text.startswith("The server bench is switched off: It lies.")


async def test_agent_or_server_is_switched_off_for_one_tenant_only(platform: Platform) -> None:
    await platform.services.storage.switches.off(Target("agent", "clerk", "bank"), "It steals.", ADMIN)
    await platform.services.storage.switches.off(Target("server", "bench", "mill"), "It burns.", ADMIN)

    await answers(platform, "switched_off", tenant="mill")
    refused = await answers(platform, "switched_off", agent="clerk", tenant="bank")

    assert refused.text.startswith("The agent clerk is switched off: It steals.")
    others = [await looked(platform, agent="clerk", tenant="shop"), await looked(platform, agent="boss", tenant="bank")]
    assert [outcome.status for outcome in others] == ["succeeded"] * 2


async def test_one_tenant_or_all_tenants_are_switched_off(platform: Platform) -> None:
    await platform.services.storage.switches.off(Target("tenant", "bank"), "Closed.", ADMIN)
    one = await answers(platform, "switched_off", tenant="bank")
    other = await looked(platform, tenant="shop")
    await platform.services.storage.switches.off(Target("tenant", "*"), "Fire.", ADMIN)
    every = await answers(platform, "switched_off", tenant="shop")

    assert one.text.startswith("The tenant bank is switched off: Closed.")
    assert (other.status, every.text[:38]) == ("succeeded", "Everything is switched off: Fire. The ")


@pytest.mark.parametrize("revoked", [False, True], ids=["server switched off", "key revoked"])
async def test_running_run_makes_no_further_call_to_a_switched_off_server_or_with_a_revoked_key(
    platform: Platform, script: ScriptedModel, workbench: Workbench, *, revoked: bool
) -> None:
    script.supervisor(decision(task("t1", BENCH)), decision())
    script.agent("t1", Answer("", LOOK.tool_calls, hold="off"))
    script.reviewer(verdict("REJECTED", "Nothing was looked at."))
    script.qa(Answer("It couldn't be done."))
    storage = platform.services.storage
    row, _ = await storage.keys.create(HOST_ADMIN, KeySpec("test", "default", frozenset([Scope.RUN])), ADMIN)
    life = asyncio.get_running_loop().create_task(platform.finish(await accept(platform, row.id)))
    await platform.model.received(2)
    await (
        storage.keys.revoke(HOST_ADMIN, row.id, ADMIN) if revoked else storage.switches.off(SERVER, "It lies.", ADMIN)
    )
    await answers(platform, "switched_off", caller=row.id)

    platform.model.release("off")

    said = f"The key {row.id}, which this run was requested with, was revoked."
    said = said if revoked else "The server bench is switched off: It lies."
    results = (await life).of("tool_result")
    assert {(result["status"], said in result["result"]) for result in results} == {("failed", True)}
    assert "look disk" not in workbench.done()
    assert ((await looked(platform)).status == "succeeded") == revoked


async def test_supervisor_prompt_marks_what_is_switched_off(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(reply="I can't."))
    await platform.services.storage.switches.off(Target("agent", "coder"), "It guesses.", ADMIN)
    await platform.services.storage.switches.off(SERVER, "It lies.", ADMIN)
    await answers(platform, "switched_off")  # the one that was switched off last

    await platform.ask("How is the disk?")

    (asked,) = platform.requests_containing("How is the disk?")
    seen = "".join(message["content"] for message in asked["messages"])
    assert "Can't work now: The server bench is switched off: It lies" in seen
    assert "Can't work now: The agent coder is switched off: It guesses" in seen


async def test_each_switch_writes_an_audit_entry_and_an_audit_event(platform: Platform) -> None:
    await platform.services.storage.switches.off(SERVER, "It lies.", ADMIN)
    await platform.services.storage.switches.on(SERVER, ADMIN)

    async with platform.services.storage.engine.connect() as connection:
        rows = (await connection.execute(select(audit).order_by(audit.c.id))).all()
        stream = (await connection.execute(select(audit_events).order_by(audit_events.c.id))).all()

    assert [(row.action, row.target) for row in rows][-2:] == [
        ("switch.off", "server bench"),
        ("switch.on", "server bench"),
    ]
    assert [(event.event_type, event.correlation_id) for event in stream] == [(row.action, row.id) for row in rows]
    assert stream[-2].payload["detail"] == {"tenant": "*", "kind": "server", "name": "bench", "reason": "It lies."}
