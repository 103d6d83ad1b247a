"""Calls that may change something: never silently made twice, never silently lost."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection
from sqlalchemy import text

from brain.durability.in_doubt import RESOLUTION
from starling.core.clock import Deadline, SystemClock
from starling.core.errors import ConflictError, LeaseLostError
from starling.core.events.run_events import ExactCall
from starling.core.tools import ToolCall
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.kill_switches import Target
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.interrupts import StoredInterrupt
from starling.infra.postgres.runs.ledger import LedgerReader, LedgerRow
from tests.integration.brain.conftest import Open
from tests.support.effect_recorder import AGENT, EffectRecorder
from tests.support.interrupted_runs import (
    ANSWERER,
    HOLD_DISPATCH,
    answer_interrupts,
    execute_run,
    open_interrupts,
    wait_for_event,
)
from tests.support.model_script import Answer
from tests.support.platform import Platform, RunStream, ScriptedModel, calls, decision, task, verdict
from tests.support.run_factories import wait_for_lock_waiter

PASS_LIMIT = text("""
UPDATE interrupts SET response_schema = jsonb_set(response_schema, '{notDoneFrom}', to_jsonb(now()))""")
NEXT_TRANSACTION = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"


@pytest.fixture
async def platform(opened: Open, effects: EffectRecorder) -> AsyncGenerator[Platform]:
    async with opened(servers={"effects": effects.as_server()}) as platform:
        yield platform


def one_task(script: ScriptedModel, *answers: Answer) -> None:
    """Give one task to the effects' agent, which answers so; all else succeeds, and a failure is told."""
    script.run(decision(task("t1", AGENT)), decision(), t1=[*answers], qa=Answer("That is what came of it [1]."))


def stalled(tool: str, moment: str = "after", **more: str) -> Answer:
    return calls((tool, {"what": "a", "stall": moment, "gate": "gate", **more}))


async def cut_off(platform: Platform, effects: EffectRecorder, at: str = "done") -> RunKey:
    """Begin a run and end its life while its call is out."""
    key = await platform.accept("Do it.")
    async with platform.executing(key):
        await effects.until(at, "a")
    return key


@asynccontextmanager
async def losing_its_lease(platform: Platform, key: RunKey, effects: EffectRecorder) -> AsyncGenerator[None]:
    """Execute a run until its call has arrived; then its lease has expired, and the execution goes on."""
    life = asyncio.get_running_loop().create_task(platform.brain.execute(await platform.claim(key)))
    try:
        await effects.until("arrived", "a")
        async with platform.services.storage.engine.begin() as connection:
            await connection.execute(text("UPDATE runs SET lease_until = now() - interval '1 second'"))
        yield
    finally:
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)


async def rows(platform: Platform, key: RunKey) -> Sequence[LedgerRow]:
    return await LedgerReader(platform.services.storage.engine).calls(key)


def asked_about(question: StoredInterrupt) -> tuple[str, str]:
    """Return the tool, and the thing that it was called with."""
    call = ExactCall.model_validate(question.call)
    return call.name, call.args["what"]


def results(stream: RunStream) -> list[str]:
    return [result["result"] for result in stream.of("tool_result")]


async def test_interrupted_read_has_no_ledger_row_and_is_repeated(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder
) -> None:
    one_task(script, stalled("read_it"))
    key = await cut_off(platform, effects)
    effects.open("gate")

    stream = await platform.finish(key)

    assert (stream.status, results(stream)) == ("succeeded", ["read_it a: fine"])
    assert [line["key"] for line in effects.lines("arrived")] == [None, None]
    assert await rows(platform, key) == []


async def test_interrupted_idempotent_call_is_repeated_under_its_key(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder
) -> None:
    one_task(script, stalled("put"))
    key = await cut_off(platform, effects)
    effects.open("gate")

    stream = await platform.finish(key)

    (row,) = await rows(platform, key)
    assert (stream.status, results(stream)) == ("succeeded", ["put a: fine"])
    assert [line["key"] for line in effects.lines("arrived")] == [row.sent_key, row.sent_key]
    assert (row.tool, row.effect, row.state, row.settled_by) == ("effects.put", "idempotent", "succeeded", None)


async def test_interrupted_unsafe_call_is_in_doubt_and_its_question_shows_the_call(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder
) -> None:
    one_task(script, stalled("charge"))
    key = await cut_off(platform, effects)

    await execute_run(platform, key)

    (row,) = await rows(platform, key)
    (question,) = await open_interrupts(platform, key)
    record = await platform.services.runs.documents.row(key)
    assert (record.status, row.state, row.settled) == ("waiting", "in_doubt", False)
    assert question.kind == "in_doubt"
    assert question.responseSchema == RESOLUTION  # the process handed the run back: the call has ended
    assert asked_about(question) == ("effects.charge", "a")
    assert all(known in question.message for known in (row.key, "process 1 of the run", "effects.charge"))
    assert effects.done() == ["charge a"]


async def test_call_in_doubt_that_a_person_found_done_has_the_given_result(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder
) -> None:
    one_task(script, stalled("charge"))
    key = await cut_off(platform, effects)
    await execute_run(platform, key)
    await answer_interrupts(platform, key, resolution="done", result="receipt 7")

    stream = await platform.finish(key)

    (row,) = await rows(platform, key)
    assert stream.status == "succeeded"
    assert results(stream) == ["receipt 7\n[Its own answer was lost; a person says this.]"]
    assert (row.state, row.settled_by) == ("succeeded", ANSWERER)
    assert effects.done() == ["charge a"]


async def test_call_in_doubt_that_a_person_found_not_done_is_made_under_the_same_key(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder
) -> None:
    one_task(script, stalled("charge", "before"))
    key = await cut_off(platform, effects, "arrived")
    await execute_run(platform, key)
    await answer_interrupts(platform, key, resolution="not_done")
    effects.open("gate")

    stream = await platform.finish(key)

    (row,) = await rows(platform, key)
    assert (stream.status, results(stream)) == ("succeeded", ["charge a: fine"])
    assert [line["key"] for line in effects.lines("arrived")] == [row.key, row.key]
    assert (row.state, row.settled_by) == ("succeeded", None)


async def test_call_of_a_lost_lease_is_taken_as_not_done_only_once_its_time_limit_has_passed(
    opened: Open, script: ScriptedModel, effects: EffectRecorder
) -> None:
    one_task(script, stalled("charge", "before"))
    async with opened(servers={"effects": effects.as_server(timeout=200)}) as platform:
        key = await platform.accept("Do it.")
        async with losing_its_lease(platform, key, effects):
            await execute_run(platform, key)

            (row,), (question,) = await rows(platform, key), await open_interrupts(platform, key)
            assert row.dispatched_at
            since = str(question.responseSchema["notDoneFrom"])
            with pytest.raises(ConflictError, match="may still be going on: `not_done` is accepted from") as refused:
                await answer_interrupts(platform, key, resolution="not_done")
            async with platform.services.storage.engine.begin() as connection:
                await connection.execute(PASS_LIMIT)
            await answer_interrupts(platform, key, resolution="not_done")
            effects.open("gate")
            stream = await platform.finish(key)

    limit = datetime.fromisoformat(since)
    assert timedelta(seconds=199) < limit - row.dispatched_at <= timedelta(seconds=200)
    assert f"`not_done` from {limit:%Y-%m-%d %H:%M:%S} UTC on" in question.message
    assert "may not have ended" in question.message
    assert since in str(refused.value)
    assert stream.status == "succeeded"
    assert [line["fence"] for line in effects.lines("arrived")] == [1, 3]


async def test_server_that_compares_fences_refuses_the_call_of_a_process_that_lost_the_run(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder
) -> None:
    one_task(script, stalled("pay", "before"))
    key = await platform.accept("Do it.")
    async with losing_its_lease(platform, key, effects), platform.executing(key) as run:
        await effects.until("arrived", "a", 2)
        effects.open("gate")
        await run
        stream = await platform.stream(key)

    first, second = effects.lines("arrived")
    assert (first["key"], first["fence"], second["fence"]) == (second["key"], 1, 2)
    assert [line["fence"] for line in effects.lines("done")] == [2]
    assert (stream.status, results(stream)) == ("succeeded", ["pay a: fine"])


async def test_call_in_doubt_that_is_given_up_fails_its_task_and_stays_in_doubt(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder
) -> None:
    one_task(script, stalled("charge"))
    key = await cut_off(platform, effects)
    await execute_run(platform, key)
    await answer_interrupts(platform, key, resolution="give_up")

    stream = await platform.finish(key)

    (row,) = await rows(platform, key)
    assert (stream.status, stream.codes) == ("failed", ["outcome_unknown"])
    assert (row.state, row.settled, row.settled_by) == ("in_doubt", True, ANSWERER)
    assert effects.done() == ["charge a"]


async def test_call_that_is_interrupted_a_second_time_is_asked_about_again(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder
) -> None:
    one_task(script, stalled("charge", "before"))
    key = await cut_off(platform, effects, "arrived")
    await execute_run(platform, key)
    await answer_interrupts(platform, key, resolution="not_done")
    async with platform.executing(key):
        await effects.until("arrived", "a", 2)
    await execute_run(platform, key)

    (question,) = await open_interrupts(platform, key)
    await answer_interrupts(platform, key, resolution="done")
    stream = await platform.finish(key)

    assert "process 3 of the run" in question.message
    assert stream.status == "succeeded"
    assert len(stream.of("in_doubt")) == 2
    assert len(effects.lines("arrived")) == 2


async def test_call_that_the_reconcile_tool_found_done_has_its_result(
    opened: Open, script: ScriptedModel, effects: EffectRecorder
) -> None:
    one_task(script, stalled("charge"))
    async with opened(servers={"effects": effects.as_server(reconcile=True)}) as platform:
        key = await cut_off(platform, effects)

        stream = await platform.finish(key)

        (row,) = await rows(platform, key)
    assert stream.status == "succeeded"
    assert results(stream) == ["found: charge a\n[Its own answer was lost; effects.find_charge says this.]"]
    assert (row.state, row.settled_by) == ("succeeded", "effects.find_charge")
    assert effects.done() == ["charge a"]


async def test_call_that_the_reconcile_tool_found_not_done_is_made(
    opened: Open, script: ScriptedModel, effects: EffectRecorder
) -> None:
    one_task(script, stalled("charge", "before"))
    async with opened(servers={"effects": effects.as_server(reconcile=True)}) as platform:
        key = await cut_off(platform, effects, "arrived")
        async with platform.executing(key) as life:
            await effects.until("arrived", "a", 3)  # the call, the question and the call
            effects.open("gate")
            await life

        stream = await platform.stream(key)
        (row,) = await rows(platform, key)
    assert (stream.status, results(stream)) == ("succeeded", ["charge a: fine"])
    assert (row.state, row.settled_by) == ("succeeded", None)
    assert [(line["tool"], line["key"]) for line in effects.lines("arrived")] == [
        ("charge", row.key),
        ("find_charge", row.key),
        ("charge", row.key),
    ]


@pytest.mark.parametrize("spoilt", ["garbage", "fail"])
async def test_call_that_the_reconcile_tool_cannot_decide_is_asked_about(
    opened: Open, script: ScriptedModel, effects: EffectRecorder, spoilt: str
) -> None:
    one_task(script, stalled("charge", found=spoilt))
    async with opened(servers={"effects": effects.as_server(reconcile=True)}) as platform:
        key = await cut_off(platform, effects)

        await execute_run(platform, key)

        assert [question.kind for question in await open_interrupts(platform, key)] == ["in_doubt"]
    assert effects.done() == ["charge a"]


async def test_intended_call_that_was_not_dispatched_is_made_once(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder, database_url: str
) -> None:
    one_task(script, calls(("charge", {"what": "a"})))
    key = await platform.accept("Do it.")
    async with await AsyncConnection.connect(database_url, autocommit=True) as other:
        await other.execute(HOLD_DISPATCH)
        await other.execute("SELECT pg_advisory_lock(7)")
        async with platform.executing(key):
            await wait_for_lock_waiter(database_url)
        (row,) = await rows(platform, key)

    stream = await platform.finish(key)

    assert row.state == "intended"
    assert (stream.status, results(stream)) == ("succeeded", ["charge a: fine"])
    assert [line["key"] for line in effects.lines("arrived")] == [row.key]


async def test_interrupted_concurrent_calls_are_recovered_each_by_its_state(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder
) -> None:
    three: list[tuple[str, dict[str, Any] | str]] = [
        ("charge", {"what": "whole"}),
        ("charge", {"what": "after", "stall": "after", "gate": "gate"}),
        ("put", {"what": "again", "stall": "before", "gate": "gate"}),
    ]
    one_task(script, calls(*three))
    key = await platform.accept("Do three things.")
    async with platform.executing(key):
        await effects.until("done", "after")
        await effects.until("arrived", "again")
        await wait_for_event(platform, key, "tool_result")
    effects.open("gate")
    await execute_run(platform, key)
    (question,) = await open_interrupts(platform, key)
    await answer_interrupts(platform, key, resolution="done", result="yes")

    stream = await platform.finish(key)

    assert asked_about(question) == ("effects.charge", "after")
    assert sorted(text.partition("\n")[0] for text in results(stream)) == [
        "charge whole: fine",
        "put again: fine",
        "yes",
    ]
    assert len(stream.of("tool_start")) == 3
    assert [effects.done().count(f"charge {what}") for what in ("whole", "after")] == [1, 1]
    assert stream.done["usage"]["tool_calls"] == 3


async def test_timed_out_call_that_the_reconcile_tool_found_not_done_fails(
    opened: Open, script: ScriptedModel, effects: EffectRecorder
) -> None:
    one_task(script, stalled("charge", "before"), calls(("charge", {"what": "b"})))
    async with opened(servers={"effects": effects.as_server(reconcile=True, timeout=2)}) as platform:
        stream = await platform.ask("Do it.")
        found = await rows(platform, stream.key)

    assert stream.status == "succeeded"
    assert [(row.state, row.settled_by) for row in found] == [("failed", "effects.find_charge"), ("succeeded", None)]
    assert results(stream)[0].endswith("According to effects.find_charge, it was not done.")
    assert effects.done() == ["charge b"]


@pytest.mark.parametrize("tool", ["read_it", "put", "charge"])
async def test_result_with_values_that_postgres_cannot_store_is_stored_replaced_and_replayed(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder, tool: str
) -> None:
    script.supervisor(decision(task("t1", AGENT)))
    script.agent("t1", calls((tool, {"what": "a", "answer": "odd"})))
    script.reviewer(Answer("", hold="for ever"), verdict("APPROVED"))
    script.qa(Answer("Odd [1]."))
    key = await platform.accept("Do it.")
    async with platform.executing(key):
        await platform.model.received(3)
        await wait_for_event(platform, key, "tool_result")

    stream = await platform.finish(key)

    assert stream.status == "succeeded"
    assert results(stream) == ["a\ufffdb"]
    assert effects.done() == [f"{tool} a"]
    outcomes = [(row.outcome or {})["data"] for row in await rows(platform, key)]
    odd = {"nul\ufffd": "a\ufffdb", "big": str(10**400)}
    assert outcomes == ([] if tool == "read_it" else [odd])


async def test_call_with_large_numbers_is_recognized_after_a_crash(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder
) -> None:
    script.supervisor(decision(task("t1", AGENT)))
    script.agent("t1", calls(("put", {"what": "a", "sizes": [1e16, 1e22, -0.0]})), calls(("put", {"what": "b"})))
    script.reviewer(verdict("REJECTED", "Again."), Answer("", hold="for ever"), verdict("APPROVED"))
    script.qa(Answer("Put [1]."))
    key = await platform.accept("Do it.")
    async with platform.executing(key):
        await platform.model.received(5)

    stream = await platform.finish(key)

    assert (stream.status, stream.codes) == ("succeeded", [])
    assert effects.done() == ["put a", "put b"]


async def test_call_with_invalid_arguments_is_not_dispatched(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder
) -> None:
    one_task(script, calls(("charge", {"who": "a"})), calls(("charge", {"what": "a"})))

    stream = await platform.ask("Do it.")

    found = await rows(platform, stream.key)
    assert stream.status == "succeeded"
    assert [(row.state, row.fence, row.dispatched_at is None) for row in found] == [
        ("failed", 0, True),
        ("succeeded", 1, False),
    ]
    assert effects.done() == ["charge a"]


async def test_call_of_a_lost_lease_that_is_refused_now_may_still_be_going_on(
    opened: Open, script: ScriptedModel, effects: EffectRecorder
) -> None:
    one_task(script, stalled("charge", "before"))
    async with opened(servers={"effects": effects.as_server(timeout=200)}) as platform:
        key = await platform.accept("Do it.")
        async with losing_its_lease(platform, key, effects):
            await platform.worker_runtime.gateway.catalog.remove("effects")

            await execute_run(platform, key)

            (question,) = await open_interrupts(platform, key)
            with pytest.raises(ConflictError, match="may still be going on: `not_done` is accepted from"):
                await answer_interrupts(platform, key, resolution="not_done")

    assert "may not have ended" in question.message


@asynccontextmanager
async def slow_server(opened: Open, effects: EffectRecorder, **limits: float) -> AsyncGenerator[Platform]:
    """Open a platform whose server has been listed, and whose next process starts once the gate `start` is open."""
    effects.open("start")
    servers = {"effects": effects.as_server(start_gate="start")}
    async with opened(servers=servers, **limits) as platform:
        effects.close("start")
        yield platform


async def intended(platform: Platform, key: RunKey) -> None:
    """Return once the run's call is on its way to a session."""
    async with asyncio.timeout(60):
        while [row.state for row in await rows(platform, key)] != ["intended"]:  # noqa: ASYNC110 - in the database
            await asyncio.sleep(0.01)


async def test_worker_that_loses_the_run_while_a_session_opens_makes_no_call(
    opened: Open, script: ScriptedModel, effects: EffectRecorder, database_url: str
) -> None:
    one_task(script, calls(("charge", {"what": "a"})))
    async with slow_server(opened, effects) as platform:
        key = await platform.accept("Do it.")
        async with platform.executing(key) as life:
            await intended(platform, key)
            async with await AsyncConnection.connect(database_url, autocommit=True) as other:
                await other.execute("UPDATE runs SET fence = fence + 1")
            effects.open("start")
            with pytest.raises(LeaseLostError):
                await life

    assert effects.lines("arrived") == []


async def test_call_whose_worker_ends_while_its_session_opens_is_made_by_the_next_one(
    opened: Open, script: ScriptedModel, effects: EffectRecorder
) -> None:
    one_task(script, calls(("charge", {"what": "a"})))
    async with slow_server(opened, effects) as platform:
        key = await platform.accept("Do it.")
        async with platform.executing(key):
            await intended(platform, key)
        effects.open("start")

        stream = await platform.finish(key)

    assert (stream.status, effects.done()) == ("succeeded", ["charge a"])


async def test_call_that_times_out_while_its_session_opens_was_not_made(
    opened: Open, script: ScriptedModel, effects: EffectRecorder
) -> None:
    one_task(script, calls(("charge", {"what": "a"})), Answer("It failed."))

    async with slow_server(opened, effects, tool_call_seconds=1) as platform:
        stream = await platform.ask("Do it.")
        (row,) = await rows(platform, stream.key)

    assert row.state == "failed"
    assert results(stream) == ["No session with effects was open within 1 s. The tool was not called."]
    assert effects.lines("arrived") == []


@asynccontextmanager
async def counting(database_url: str) -> AsyncGenerator[list[int]]:
    """Give a list that holds, once the block has ended, how many transactions wrote meanwhile."""
    counted: list[int] = []
    async with await AsyncConnection.connect(database_url, autocommit=True) as other:
        before = await (await other.execute(NEXT_TRANSACTION)).fetchone()
        yield counted
        after = await (await other.execute(NEXT_TRANSACTION)).fetchone()
    assert before is not None
    assert after is not None
    counted.append(after[0] - before[0])


@pytest.mark.parametrize(("tool", "most"), [("read_it", 14), ("put", 14 + 2 * 2), ("charge", 14 + 2 * 2)])
async def test_unsafe_call_takes_at_most_two_transactions(
    opened: Open, script: ScriptedModel, effects: EffectRecorder, database_url: str, tool: str, most: int
) -> None:
    script.supervisor(decision(task("t1", "mcp_agent_one"), task("t2", "mcp_agent_two")))
    for number in ("t1", "t2"):
        script.agent(number, calls((tool, {"what": number})))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Done [1][2]."))
    servers = {"one": effects.as_server(), "two": effects.as_server()}
    written: list[int] = []
    async with opened(servers=servers) as platform:
        for thread in ("first", "second", "third"):
            async with counting(database_url) as counted:
                stream = await platform.ask("Do both.", thread=thread)
            assert stream.status == "succeeded"
            written += counted

    assert min(written) <= most  # whatever else goes on only adds to it


async def test_call_in_doubt_of_a_diverged_task_is_settled_and_not_repeated(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder, database_url: str
) -> None:
    one_task(script, stalled("charge"))
    key = await cut_off(platform, effects)
    async with await AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute("UPDATE journal SET request_hash = 'other' WHERE path = 't1' AND kind = 'answer'")

    stream = await platform.finish(key)

    (row,) = await rows(platform, key)
    assert (stream.codes, row.state, row.settled) == (["journal_diverged"], "in_doubt", True)
    assert [result["call_id"] for result in stream.of("tool_result")] == [row.call_id]
    assert platform.requests_containing("outcome_unknown")
    assert effects.done() == ["charge a"]


async def test_reconcile_tool_of_a_switched_off_server_is_not_called(
    opened: Open, script: ScriptedModel, effects: EffectRecorder
) -> None:
    one_task(script, stalled("charge"))
    async with opened(servers={"effects": effects.as_server(reconcile=True)}) as platform:
        key = await platform.accept("Do it.")
        async with platform.executing(key) as life:
            await effects.until("done", "a")
            [out] = effects.lines("done")
            await platform.services.storage.switches.off(Target("server", "effects"), "It burns.", Actor.local("test"))
            await refused(platform)
            os.kill(out["pid"], signal.SIGKILL)
            await life

        assert [question.kind for question in await open_interrupts(platform, key)] == ["in_doubt"]
    assert "find_charge" not in {line["tool"] for line in effects.lines("arrived")}


async def refused(platform: Platform) -> None:
    """Return once this process knows that the effects' server is switched off."""
    listing = platform.worker_runtime.gateway.listing("effects")
    assert listing is not None
    tool = next(tool for tool in listing.tools if tool.name == "read_it")
    call = ToolCall("probe", "run", "t1", tool, {"what": "probe"})
    async with asyncio.timeout(60):
        while True:
            outcome = await platform.worker_runtime.gateway.call(call, Deadline(SystemClock(), 20))
            if outcome.code == "switched_off":
                return
            await asyncio.sleep(0.01)  # a call that is refused waits for nothing
