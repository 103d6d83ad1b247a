"""A live fork does nothing twice: a person is asked about what its original sent, and idempotent keys stay the same."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from starling.core.principal import Grant
from starling.core.runs import ForkRequest, RunLimits
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.retention import PruneSelection, Retention
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.interrupts import StoredInterrupt
from starling.infra.postgres.runs.ledger import LedgerReader, LedgerRow
from tests.support.interrupted_runs import answer_interrupts, execute_run, open_interrupts
from tests.support.model_script import Answer
from tests.support.model_server import ModelServer
from tests.support.platform import (
    BENCH,
    SHOP,
    Platform,
    RunStream,
    ScriptedModel,
    Workbench,
    calls,
    decision,
    open_platform,
    task,
    verdict,
)

MINT = "mcp_agent_mint"  # the same tools again, as idempotent ones
CHANGE = [calls(("change", {"thing": "door"}))]
FAIL = [calls(("fail", {"why": "stuck"}))]
BAD, GOOD = verdict("REJECTED", "not enough"), verdict("APPROVED")


@pytest.fixture
async def platform(
    database_url: str, model: ModelServer, workbench: Workbench, tmp_path: Path
) -> AsyncGenerator[Platform]:
    effects = {"bench": "read", "shop": "unsafe", "mint": "idempotent"}
    servers = {name: workbench.as_server(effect) for name, effect in effects.items()}
    async with open_platform(database_url, model, servers, tmp_path) as platform:
        yield platform


def one_task(script: ScriptedModel, agent: str, made: Sequence[Answer], *verdicts: Answer) -> None:
    script.forget()
    script.supervisor(decision(task("t1", agent)), decision())
    script.agent("t1", *made)
    script.reviewer(*verdicts)
    script.qa(Answer("Fine [1]."))


async def forked(platform: Platform, original: RunKey, *, limits: RunLimits | None = None, live: bool = True) -> RunKey:
    request = ForkRequest(at="t1", live=live, limits=limits or RunLimits())
    accepted = await platform.services.forks.accept(platform.caller, original.id, request)
    return RunKey(original.tenant, accepted.started.run_id)


async def approved(platform: Platform, key: RunKey) -> tuple[RunStream, Sequence[StoredInterrupt]]:
    """Execute a run to its end and approve what it asks; return its stream and the questions."""
    await execute_run(platform, key)
    asked: list[StoredInterrupt] = []
    while waiting := await open_interrupts(platform, key):
        asked += waiting
        await answer_interrupts(platform, key, approved=True)
        await execute_run(platform, key)
    return await platform.stream(key), asked


async def sent(platform: Platform, key: RunKey) -> Sequence[LedgerRow]:
    return await LedgerReader(platform.services.storage.engine).calls(key)


@pytest.mark.parametrize("agent", [SHOP, MINT])
async def test_later_attempt_of_a_live_fork_gets_what_the_first_one_did(
    platform: Platform, script: ScriptedModel, workbench: Workbench, agent: str
) -> None:
    one_task(script, agent, CHANGE, GOOD)
    original = await platform.ask("Change it.")
    one_task(script, agent, CHANGE, BAD, GOOD)
    workbench.forget()

    stream, asked = await approved(platform, await forked(platform, original.key))

    assert (stream.status, [item.kind for item in asked]) == ("succeeded", ["approval"])
    assert workbench.done() == ["change door"]
    assert [(row.attempt, row.state) for row in await sent(platform, stream.key)] == [(1, "succeeded"), (2, "reused")]


@pytest.mark.parametrize(("made", "states"), [(CHANGE, {"succeeded", "reused"}), (FAIL, {"failed"})])
async def test_idempotent_call_has_the_key_of_the_original_in_each_attempt_and_in_forks_of_the_fork(
    platform: Platform, script: ScriptedModel, made: Sequence[Answer], states: set[str]
) -> None:
    one_task(script, MINT, made, GOOD)
    original = await platform.ask("Change it.")
    [key] = {row.sent_key for row in await sent(platform, original.key)}
    one_task(script, MINT, made, BAD, GOOD)

    first, _ = await approved(platform, await forked(platform, original.key))
    one_task(script, MINT, made, BAD, GOOD)
    second, _ = await approved(platform, await forked(platform, first.key))

    for fork in (first, second):
        rows = await sent(platform, fork.key)
        assert {row.state for row in rows} == states
        assert {(row.attempt, row.sent_key) for row in rows} == {(1, key), (2, key)}


@pytest.mark.parametrize("how", ["by retention", "after a rewind"])
async def test_live_fork_whose_original_is_pruned_before_it_begins_fails_without_effect(
    platform: Platform, script: ScriptedModel, workbench: Workbench, how: str
) -> None:
    one_task(script, SHOP, CHANGE, GOOD)
    original = await platform.ask("Change it.")
    workbench.forget()
    key = await forked(platform, original.key)
    if how == "by retention":
        await Retention(platform.services.storage.engine).prune(PruneSelection(timedelta(0), key.tenant))
    else:
        changes, actor = platform.services.threads.changes, Actor.local("test")
        await changes.rewind(key.tenant, "thread", "main", 0, actor)
        assert (await changes.prune(key.tenant, "thread", actor)).runs == 1

    stream = await platform.finish(key)

    assert (stream.status, stream.done["code"]) == ("failed", "not_forkable")
    assert workbench.done() == []


async def test_failure_of_the_original_is_a_failure_in_a_fork_that_is_not_live(
    platform: Platform, script: ScriptedModel, workbench: Workbench
) -> None:
    one_task(script, SHOP, FAIL, GOOD)
    original = await platform.ask("Change it.")
    workbench.forget()

    stream = await platform.finish(await forked(platform, original.key, live=False))

    results = stream.of("tool_result")
    assert {(result["status"], result["simulated"]) for result in results} == {("failed", "fixture")}
    assert all("stuck" in result["result"] for result in results)
    assert workbench.done() == []


async def test_grant_of_the_forker_applies_to_the_fork(
    platform: Platform, script: ScriptedModel, workbench: Workbench
) -> None:
    one_task(script, SHOP, CHANGE, GOOD)
    original = await platform.ask("Change it.")
    workbench.forget()
    caller = replace(platform.caller, grant=Grant(frozenset(["bench"])))

    stream = await platform.finish(await forked(replace(platform, caller=caller), original.key))

    assert stream.status == "failed"
    assert "mcp_agent_shop" in str(stream.of("task_result"))
    assert workbench.done() == []


async def test_token_budget_of_the_forker_applies_to_the_fork(platform: Platform, script: ScriptedModel) -> None:
    one_task(script, BENCH, [calls(("look", {"thing": "disk"}))], GOOD)
    original = await platform.ask("Look at it.", limits={"tokens": 10_000})
    key = await forked(platform, original.key, limits=RunLimits(tokens=1, max_clarifications=0))

    await execute_run(platform, key)

    assert original.status == "succeeded"
    assert [item.kind for item in await open_interrupts(platform, key)] == ["budget"]
